#!/usr/bin/env python3
"""Signs the files of a release, or checks them: sign.py OUT --key FILE, sign.py OUT --verify KEY

OUT has the packages and nothing else. Signing writes SHA256SUMS, as sha256sum does, and SHA256SUMS.minisig by minisign, which asks for the
key's password if it has one. The same files and key give the same bytes. Checking takes the public key, as a file or as text, and fails for
a file that was changed, is missing or came later. Needs minisign (Debian: minisign).
"""
import argparse
import hashlib
import pathlib
import re
import subprocess
import sys

LIST, SIGNATURE = "SHA256SUMS", "SHA256SUMS.minisig"


def digest(path):
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            hashed.update(piece)
    return hashed.hexdigest()


def packages(out):
    entries = [path for path in sorted(out.iterdir()) if path.name not in (LIST, SIGNATURE)]
    for path in entries:
        if path.is_symlink() or not path.is_file() or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+~-]*", path.name):
            sys.exit(f"{path}: not a package: a release is a folder of plain files")
    return entries


def minisign(*words, what):
    try:
        code = subprocess.run(["minisign", *map(str, words)], check=False, stdout=subprocess.DEVNULL).returncode
    except FileNotFoundError:
        sys.exit("minisign is needed: install it (Debian: minisign)")
    if code:
        sys.exit(what)


def sign(out, key):
    files = packages(out)
    if not files:
        sys.exit(f"{out}: has no packages to sign")
    text = "".join(f"{digest(path)}  {path.name}\n" for path in files)
    (out / SIGNATURE).unlink(missing_ok=True)
    (out / LIST).write_text(text)
    comment = f"file:{LIST} sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    minisign("-S", "-s", key, "-m", out / LIST, "-c", "signature of a release of hone", "-t", comment,
             what=f"{out / LIST}: cannot be signed by {key}")


def verify(out, key):
    given = ("-p", key) if pathlib.Path(key).exists() else ("-P", key)
    minisign("-V", "-q", *given, "-m", out / LIST, what=f"{out / LIST}: is not signed by this key")
    listed = dict(reversed(line.split("  ", 1)) for line in (out / LIST).read_text().splitlines())
    there = {path.name: digest(path) for path in packages(out)}
    wrong = sorted(name for name in listed.keys() | there.keys() if listed.get(name) != there.get(name))
    if wrong:
        sys.exit(f"{out}: changed, missing or not in {LIST}: {', '.join(wrong)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=pathlib.Path)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--key", type=pathlib.Path, help="the secret key of minisign -G")
    group.add_argument("--verify", metavar="KEY", help="the public key, as a file or as text")
    args = parser.parse_args()
    if args.key:
        sign(args.out, args.key)
    else:
        verify(args.out, args.verify)


main()
