"""Archives whose bytes follow only from their files: names are sorted, owners are nobody, and times are SOURCE_DATE_EPOCH, or else the
time of the last commit."""
import base64
import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import tarfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def output(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "-C", ROOT, "log", "-1", "--format=%ct"))


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def tarball(folder, name, out):
    """All files of a folder, below a folder of the archive's name."""
    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch()
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry
    path = out / f"{name}.tar.gz"
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for file in files_of(folder):
            tar.add(file, f"{name}/{file.relative_to(folder)}", filter=plain)
    return path


def wheel(name, version, tag, metadata, contents, out, programs=()):
    """A wheel of contents, {path: bytes}; what stands in dist-info/ there goes into its own folder of that name. Its METADATA is the
    lines given and a text after them."""
    info = f"{name}-{version}.dist-info"
    contents = {path.replace("dist-info/", f"{info}/", 1) if path.startswith("dist-info/") else path: data
                for path, data in contents.items()}
    lines, text = metadata
    lines = ["Metadata-Version: 2.1", f"Name: {name.replace('_', '-')}", f"Version: {version}", *lines]
    contents[f"{info}/METADATA"] = "\n".join([*lines, "Description-Content-Type: text/markdown", "", text]).encode()
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: hone\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = io.StringIO()
    for path, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.write(f"{path},sha256={digest},{len(data)}\n")
    record.write(f"{info}/RECORD,,\n")
    contents[f"{info}/RECORD"] = record.getvalue().encode()
    path = out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for entry_name, data in contents.items():
            entry = zipfile.ZipInfo(entry_name, time.gmtime(epoch())[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if entry_name in programs else 0o100644) << 16
            file.writestr(entry, data)
    return path
