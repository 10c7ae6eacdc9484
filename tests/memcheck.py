#!/usr/bin/env python3
"""The unit tests under valgrind: no wrong address, nothing uninitialised decides, nothing is lost.

    memcheck.py FOLDER [--jobs N] [TEST...]

FOLDER has the tests' programs. Valgrind knows no AVX-512, so that oneDNN and hone's kernels take what they have for AVX2. oneDNN has no
products of bfloat16 there: tests leave them out and say so (tests/unit/processor.h). --jobs N has as many at once: one for each core, if
not given. With HONE_RECORD the figures go to tests/RESULTS.md.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import tempfile
import time

import figures

LEFT_OUT = "bfloat16 is left out"
WHOLE, PARTLY = "whole", "without bfloat16"
VALGRIND = ["setpriv", "--pdeathsig", "KILL", "valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite", "--error-exitcode=99", "--num-callers=24", "--trace-children=no",
            f"--suppressions={pathlib.Path(__file__).resolve().with_suffix('.supp')}"]


def check(test):
    """Prints how it ended, and what was said if there are errors; returns how it ended."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([*VALGRIND, test], capture_output=True, text=True, errors="replace",
                              env=dict(os.environ, HONE_ISA="avx2", XDG_CACHE_HOME=cache))
    good = not done.returncode
    said = f"ended with {done.returncode}" if not good else PARTLY if LEFT_OUT in done.stdout + done.stderr else WHOLE
    print(f"{test.name:28} {time.monotonic() - start:6.1f} s  {said}", flush=True)
    if not good:
        print(done.stdout[-3000:], done.stderr[-6000:], sep="\n", flush=True)
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_intermixed_args()
    folder = args.folder.resolve()
    tests = [folder / name for name in args.tests] or sorted(p for p in folder.glob("unit-*") if p.is_file())
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        said = list(pool.map(check, tests))
    good, partly = said.count(WHOLE) + said.count(PARTLY), said.count(PARTLY)
    print(f"{len(tests)} programs, {len(tests) - good} with errors")
    figures.record("Memory errors", f"`{'`, `'.join(args.tests) or 'unit-*'}`", programs=len(tests), without_bfloat16=partly,
                   with_errors=len(tests) - good)
    raise SystemExit(not tests or good < len(tests))


if __name__ == "__main__":
    main()
