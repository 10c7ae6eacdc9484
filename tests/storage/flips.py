#!/usr/bin/env python3
"""Flips single bits in checkpoints, cached tokens and cached kernels: each is found, and only time is lost.

    flips.py UNIT-FLIPS [--flips N]         UNIT-FLIPS: the program of tests/unit/test_flips.c; N in all, a third in each kind

With HONE_RECORD the figures go to tests/RESULTS.md.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--flips", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([args.program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "HONE_FLIPS": str(args.flips), "XDG_CACHE_HOME": cache})
    print(done.stdout, end="")
    for kind, found in re.findall(r"^(\w+): (\d+) flipped bits were found$", done.stdout, re.M):
        figures.record("Flipped bits", kind, flipped_and_found=found)
    sys.exit(done.returncode)


main()
