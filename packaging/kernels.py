#!/usr/bin/env python3
"""hone's CUDA kernels, compiled, as packages of their own: kernels.py HONE OUT [--nvrtc FILE] [--targets sm_80,sm_89] [MODEL...]

For machines that have the driver and nothing else of CUDA. HONE is the program that will use them: entries are named by the text of
its kernels, so that those of another version are not used. NVRTC is what `hone devices` finds, or FILE: libnvrtc.so.13, or a wheel
of nvidia-cuda-nvrtc. MODEL is a model's directory, of which only config.json is read; without one they are the tiny models of every
family in $HONE_ASSETS, with heads of every size in HEADS. Written to OUT, for hone's own three forms:

    hone-kernels_VERSION_amd64.deb                  for the .deb: /usr/lib/x86_64-linux-gnu/hone/kernels
    hone-kernels-VERSION-linux-x86_64.tar.gz        for the tarball: unpack it there with --strip-components=1
    libhone_kernels-VERSION-py3-none-any.whl        for the wheel: pip installs both files

The same HONE, NVRTC and commit give the same bytes.
"""
import argparse
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import zipfile

from archive import ROOT, epoch, files_of, output, tarball, wheel

TARGETS = "sm_75,sm_80,sm_86,sm_89,sm_90,sm_100,sm_120"
HEADS = (64, 128, 256)
# Runs that need other kernels than a LoRA with the defaults.
METHODS = ((), ("--finetuning-type", "full"), ("--finetuning-type", "qlora"), ("--lora-dropout", "0.1", "--train-norms"),
           ("--optim", "lion"))
PLACE = "lib/hone/kernels"
UNSUPPORTED = 7         # hone's exit code for a run that it does not have
DESCRIPTION = """compiled CUDA kernels of hone
 The kernels of hone, which fine-tunes large language models, compiled for
 NVIDIA's cards of compute capability 7.5 to 12.0. With them hone needs nothing
 of CUDA but the driver, and a first run starts without compiling.
"""


def nvrtc_of(file, folder):
    """The library itself, taken out of its wheel."""
    if file.suffix != ".whl":
        return file.resolve()
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder)
    return next(path for path in folder.rglob("libnvrtc.so.1[23]"))


def models(asked, folder):
    """Directories to build for: those that were named, or every family's with the usual sizes of heads."""
    if asked:
        return asked
    assets = pathlib.Path(os.environ.get("HONE_ASSETS") or pathlib.Path.home() / ".cache/hone-assets")
    found = []
    for config in sorted(assets.glob("models/tiny-*/config.json")):
        if config.parent.name.endswith(("-vision", "-long")):           # the kernels of their family, under configs that fix sizes
            continue
        for size in HEADS:
            values = json.loads(config.read_text(encoding="utf-8"))
            text = values.get("text_config", values)
            if "head_dim" in text:
                text["head_dim"] = size
            else:
                text["hidden_size"] = size * text["num_attention_heads"]
            to = folder / f"{config.parent.name}-{size}"
            to.mkdir()
            (to / "config.json").write_text(json.dumps(values), encoding="utf-8")
            found.append(to)
    if not found:
        raise SystemExit(f"{assets}/models has no tiny models: tests/assets/get makes them, or name models")
    return found


def build(hone, model, targets, options, out):
    """NVRTC's version, or None: the family cannot be trained in this way."""
    command = [str(word) for word in (hone, "kernels", "build", "--model", model, "--target", targets, "--output", out, "--json",
                                      *options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == UNSUPPORTED and options[2:]:
        return None
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)["targets"][0]["nvrtc"]


def debian_package(kernels, version, nvrtc, out):
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary, "package")
        shutil.copytree(kernels, root / "usr/lib/x86_64-linux-gnu/hone/kernels")
        doc = root / "usr/share/doc/hone-kernels"
        doc.mkdir(parents=True)
        shutil.copy(ROOT / "debian/copyright", doc / "copyright")
        changes = (ROOT / "debian/changelog").read_bytes().replace(b"hone (", b"hone-kernels (", 1)
        (doc / "changelog.gz").write_bytes(gzip.compress(changes, 9, mtime=0))
        (root / "DEBIAN").mkdir()
        size = sum(-(-path.stat().st_size // 1024) for path in files_of(root))
        (root / "DEBIAN/control").write_text(
            f"Package: hone-kernels\nVersion: {version}\nArchitecture: amd64\nSection: contrib/science\nPriority: optional\n"
            f"Maintainer: hone developers <developers@hone.example>\nInstalled-Size: {size}\nEnhances: hone, libhone0\n"
            f"Depends: hone (= {version}) | libhone0 (= {version})\n"
            f"Description: {DESCRIPTION} .\n They were compiled by NVRTC {nvrtc}.\n", encoding="utf-8")
        for path in root.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        path = out / f"hone-kernels_{version}_amd64.deb"
        output("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, path, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch())})
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("hone", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--nvrtc", type=pathlib.Path)
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--dtype", default="auto", help="float32, bfloat16 or float16 instead of all three")
    args = parser.parse_intermixed_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        if args.nvrtc:
            os.environ["HONE_NVRTC_LIBRARY"] = str(nvrtc_of(args.nvrtc, temporary / "nvrtc"))
        made = temporary / "made"
        (temporary / "models").mkdir()
        for model in models(args.models, temporary / "models"):
            versions = [build(args.hone.resolve(), model, args.targets, ("--dtype", args.dtype, *method), made) for method in METHODS]
        version = output(args.hone.resolve(), "--version").split()[1]
        for path in files_of(made):
            to = temporary / "root" / PLACE / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, to)
        kernels = temporary / "root" / PLACE
        count, size = len(list(kernels.glob("*.kernel"))), sum(path.stat().st_size for path in files_of(kernels))
        print(f"{count} kernels for {args.targets} by NVRTC {versions[0]}: {size / 1e6:.1f} MB")
        contents = {f"hone/{PLACE}/{path.name}": path.read_bytes() for path in files_of(kernels)}
        contents["dist-info/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
        lines = ["License: Apache-2.0", "Requires-Python: >=3.9", f"Requires-Dist: libhone=={version}",
                 "Summary: Compiled CUDA kernels of hone, for machines with only the driver"]
        for path in (debian_package(kernels, version, versions[0], args.out),
                     tarball(temporary / "root", f"hone-kernels-{version}-linux-x86_64", args.out),
                     wheel("libhone_kernels", version, "py3-none-any", (lines, DESCRIPTION), contents, args.out)):
            print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


main()
