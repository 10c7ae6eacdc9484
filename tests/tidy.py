#!/usr/bin/env python3
"""Runs clang-tidy 14 with .clang-tidy over src, with the compile commands of a build.

    tidy.py BUILD   fails where a check does; exit code 77 (skipped) without clang-tidy 14

What passed is kept in BUILD/tidy by the hash of the file, of all headers and of .clang-tidy: only what changed is run again.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import sys

import llvm

ROOT = pathlib.Path(__file__).resolve().parent.parent


def digest(paths):
    state = hashlib.sha256()
    for path in paths:
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def main(build):
    tool = llvm.find("clang-tidy")
    if not tool:
        return 77
    kept = pathlib.Path(build) / "tidy"
    kept.mkdir(exist_ok=True)
    shared = sorted(p for folder in ("src", "include") for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".def"))
    common = digest([ROOT / ".clang-tidy", *shared])
    stamps = {p: kept / hashlib.sha256((common + digest([p])).encode()).hexdigest() for p in sorted((ROOT / "src").rglob("*.c"))}
    changed = [p for p, stamp in stamps.items() if not stamp.exists()]

    def check(path):
        run = subprocess.run([tool, "--quiet", "-p", build, str(path)], capture_output=True, text=True)
        if run.returncode == 0:
            stamps[path].touch()
        return run.returncode, run.stdout

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, changed))
    for old in set(kept.iterdir()) - set(stamps.values()):
        old.unlink()
    print("".join(text for code, text in results if code), end="")
    print(f"tidy: {len(stamps)} files, {len(changed)} run, {sum(code != 0 for code, _ in results)} with findings")
    return 1 if any(code for code, _ in results) else 0


sys.exit(main(*sys.argv[1:]))
