#!/usr/bin/env python3
"""The portable tarball and the Python wheel: bundle.py BUILD OUT

BUILD is a build folder that was configured with -DHONE_PORTABLE=ON. Both files hold the program, the library, and beside them every
library that they need and that is not glibc's, with its licence; nothing has to be installed but glibc 2.36. The same input gives
the same bytes: names are sorted, and times are SOURCE_DATE_EPOCH, or else the time of the last commit.
"""
import argparse
import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
GLIBC = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv)\.so")
SYSTEM = "manylinux_2_36_x86_64"
EXTRA = {"cuda": ("nvidia-cuda-nvrtc-cu12", "nvidia-cublas-cu12")}


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "-C", ROOT, "log", "-1", "--format=%ct"))


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


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def tarball(folder, name, seconds, out):
    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = seconds
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry
    path = out / f"{name}.tar.gz"
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for file in files_of(folder):
            tar.add(file, f"{name}/{file.relative_to(folder)}", filter=plain)
    return path


def metadata(version):
    lines = ["Metadata-Version: 2.1", "Name: hone", f"Version: {version}", "License: Apache-2.0", "Requires-Python: >=3.9",
             "Summary: Fine-tuning of large language models by a native engine, without PyTorch"]
    for extra, packages in EXTRA.items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {package}; extra == "{extra}"' for package in packages)]
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text(encoding="utf-8")])


def wheel(folder, version, seconds, out):
    """The module of python/hone with bin and lib inside. A wheel keeps no links, so that each library has one name, its soname."""
    info, contents = f"hone-{version}.dist-info", {}
    for file in sorted((ROOT / "python/hone").glob("*.py")):
        contents[f"hone/{file.name}"] = file.read_bytes()
    for file in files_of(folder):
        name = file.relative_to(folder).as_posix()
        if name == "bin/hone" or re.fullmatch(r"lib/[^/]+\.so\.\d+", name):
            contents[f"hone/{name}"] = file.read_bytes()
        elif "/licences/" in name:
            contents[f"{info}/licenses/{file.name}"] = file.read_bytes()
    contents[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    contents[f"{info}/METADATA"] = metadata(version).encode()
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: hone\nRoot-Is-Purelib: false\nTag: py3-none-{SYSTEM}\n".encode()
    contents[f"{info}/entry_points.txt"] = b"[console_scripts]\nhone = hone.program:main\n"
    record = io.StringIO()
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.write(f"{name},sha256={digest},{len(data)}\n")
    record.write(f"{info}/RECORD,,\n")
    contents[f"{info}/RECORD"] = record.getvalue().encode()
    path = out / f"hone-{version}-py3-none-{SYSTEM}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name == "hone/bin/hone" else 0o100644) << 16
            file.writestr(entry, data)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = stage(args.build.resolve(), pathlib.Path(temporary, "hone"))
        version = output(folder / "bin/hone", "--version").split()[-1]
        for path in (tarball(folder, f"hone-{version}-linux-x86_64", epoch(), args.out), wheel(folder, version, epoch(), args.out)):
            print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


main()
