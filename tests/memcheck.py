#!/usr/bin/env python3
"""The unit tests under valgrind: no wrong address, nothing uninitialised decides, nothing is lost.

    memcheck.py FOLDER [TEST...]

FOLDER has the tests' programs. Valgrind knows no AVX-512, so that oneDNN and hone's kernels take what they have for AVX2. oneDNN has no
products of bfloat16 there: a test that asks for one fails and leaves its memory, so that only wrong addresses and values count then.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

VALGRIND = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite",
            "--error-exitcode=99", "--num-callers=24", "--trace-children=no"]


def check(test):
    """Prints how it ended, and what was said if there are errors; whether there are none."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([*VALGRIND, test], capture_output=True, text=True, errors="replace",
                              env=dict(os.environ, DNNL_MAX_CPU_ISA="AVX2", XDG_CACHE_HOME=cache))
    cut = "oneDNN has no implementation on this processor" in done.stderr
    good = not done.returncode or (cut and not re.search(r"(?m)^==\d+== (Invalid|Conditional|Use of|Syscall|Mismatched)", done.stderr))
    said = "ended with " + str(done.returncode) if not good else "no products of bfloat16: nothing else wrong" if cut else "whole"
    print(f"{test.name:28} {time.monotonic() - start:6.1f} s  {said}", flush=True)
    if not good:
        print(done.stdout[-3000:], done.stderr[-6000:], sep="\n", flush=True)
    return good


def main():
    folder, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    tests = [folder / name for name in names] or sorted(p for p in folder.glob("unit-*") if p.is_file())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        good = sum(pool.map(check, tests))
    print(f"{len(tests)} programs, {len(tests) - good} with errors")
    return 0 if tests and good == len(tests) else 1


if __name__ == "__main__":
    sys.exit(main())
