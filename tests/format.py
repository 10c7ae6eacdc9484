#!/usr/bin/env python3
"""Compares the layout of all C sources with .clang-format, only by clang-format 14, since releases differ.

    format.py           fails and names the first lines that differ; exit code 77 (skipped) without clang-format 14
    format.py --write   sets the sources right
"""
import pathlib
import subprocess
import sys

import llvm

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "include", "tests", "tools", "examples")


def main(arguments):
    tool = llvm.find("clang-format")
    if not tool:
        return 77
    files = sorted(str(p.relative_to(ROOT)) for folder in FOLDERS for p in (ROOT / folder).rglob("*.[ch]"))
    how = ["-i"] if arguments == ["--write"] else ["--dry-run", "-Werror", "--ferror-limit=3"]
    failed = subprocess.run([tool, *how, *files], cwd=ROOT).returncode
    print(f"format: {len(files)} files")
    return failed


sys.exit(main(sys.argv[1:]))
