#!/usr/bin/env python3
"""The portable tarball and the Python wheel: bundle.py BUILD OUT

BUILD is a build folder that was configured with -DHONE_PORTABLE=ON. Both files hold the program, the library, and next to them every
library that they need and that is not glibc's, with its licence; nothing has to be installed but glibc 2.36. The same input gives
the same bytes (archive.py).
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import tempfile

from archive import ROOT, files_of, output, tarball, wheel

GLIBC = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv)\.so")
SYSTEM = "manylinux_2_36_x86_64"
EXTRA = {"cuda": ("nvidia-cuda-nvrtc-cu12", "nvidia-cublas-cu12")}


def needed(program):
    """soname -> file of all that the loader brings along, without glibc."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", program), re.M)
    return {name: pathlib.Path(path).resolve() for name, path in found if not GLIBC.match(name)}


def licence(library):
    """(package, file) of the Debian package that a library is from."""
    for path in (library, pathlib.Path(str(library).removeprefix("/usr"))):
        done = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            package = done.stdout.split(":")[0]
            return package, pathlib.Path("/usr/share/doc", package, "copyright")
    raise SystemExit(f"{library}: no package has it, so its licence is not known")


def stage(build, folder):
    """bin, lib, include and share, as they are unpacked."""
    subprocess.run(["cmake", "--install", build, "--prefix", folder, "--strip"], check=True, stdout=subprocess.DEVNULL)
    lib = next(folder.glob("lib/**/libhone.so.0")).parent
    if lib != folder / "lib":
        raise SystemExit(f"{build}: was not configured with -DHONE_PORTABLE=ON")
    for name, path in needed(folder / "bin/hone").items():
        package, text = licence(path)
        shutil.copy(path, lib / name)
        (folder / "share/doc/hone/licences").mkdir(parents=True, exist_ok=True)
        shutil.copy(text, folder / "share/doc/hone/licences" / package)
    return folder


def metadata(version):
    lines = ["License: Apache-2.0", "Requires-Python: >=3.9",
             "Summary: Fine-tuning of large language models by a native engine, without PyTorch"]
    for extra, packages in {**EXTRA, "kernels": (f"libhone-kernels=={version}",)}.items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {package}; extra == "{extra}"' for package in packages)]
    return lines, (ROOT / "README.md").read_text(encoding="utf-8")


def wheel_of(folder, version, out):
    """The module of python/hone with bin and lib inside. Its name is libhone: the hone of PyPI is another project. A wheel keeps no
    links, so that each library has one name, its soname."""
    contents = {f"hone/{file.name}": file.read_bytes() for file in sorted((ROOT / "python/hone").glob("*.py"))}
    for file in files_of(folder):
        name = file.relative_to(folder).as_posix()
        if name == "bin/hone" or re.fullmatch(r"lib/[^/]+\.so\.\d+", name):
            contents[f"hone/{name}"] = file.read_bytes()
        elif "/licences/" in name:
            contents[f"dist-info/licenses/{file.name}"] = file.read_bytes()
    contents["dist-info/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    contents["dist-info/entry_points.txt"] = b"[console_scripts]\nhone = hone.program:main\n"
    return wheel("libhone", version, f"py3-none-{SYSTEM}", metadata(version), contents, out, programs=("hone/bin/hone",))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = stage(args.build.resolve(), pathlib.Path(temporary, "hone"))
        version = output(folder / "bin/hone", "--version").split()[1]
        for path in (tarball(folder, f"hone-{version}-linux-x86_64", args.out), wheel_of(folder, version, args.out)):
            print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


main()
