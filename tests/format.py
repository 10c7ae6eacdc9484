#!/usr/bin/env python3
"""Compares the layout of all C sources with .clang-format, by clang-format 14 alone, since releases differ.

    format.py           fails and names the first lines that differ; exit code 77 (skipped) without clang-format 14
    format.py --write   sets the sources right
"""
import pathlib
import shutil
import subprocess
import sys

RELEASE = "14"
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "include", "tests", "tools", "examples")


def find():
    for name in (f"clang-format-{RELEASE}", "clang-format"):
        path = shutil.which(name)
        if path and f"version {RELEASE}." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def main(arguments):
    tool = find()
    if not tool:
        print(f"clang-format {RELEASE} is not installed (Debian: clang-format-{RELEASE})")
        return 77
    files = sorted(str(p.relative_to(ROOT)) for folder in FOLDERS for p in (ROOT / folder).rglob("*.[ch]"))
    how = ["-i"] if arguments == ["--write"] else ["--dry-run", "-Werror", "--ferror-limit=3"]
    failed = subprocess.run([tool, *how, *files], cwd=ROOT).returncode
    print(f"format: {len(files)} files")
    return failed


sys.exit(main(sys.argv[1:]))
