#!/usr/bin/env python3
"""Many processes start at once on one empty cache of compiled kernels.

    cache_race.py CACHE-START ROUNDS [DEVICE ...]

Each round is 16 processes that have opened the device and then need the same kernels at the same moment. All must get the right
result and none may warn; the cache then holds one whole entry for each kernel and nothing else, and a further start compiles
nothing.
`ninja cache-race` runs 100 rounds on CUDA (the simulator) and OpenCL. Seen to fail with file_writer_open
writing in place, without a .part file: "the entry is damaged; the kernel is compiled again".
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PROCESSES, KERNELS = 16, 2


def start(program, device, cache, gate):
    return subprocess.Popen([program, device], stdin=gate, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=os.environ | {"HONE_CACHE": str(cache)})


def finish(process):
    """What it compiled and loaded."""
    out = process.communicate()[0]
    counts = re.search(r"compiled (\d+) loaded (\d+)", out)
    if process.returncode or not counts:
        sys.exit(f"a start failed with {process.returncode}:\n{out}")
    return int(counts[1]), int(counts[2])


def race(program, device):
    with tempfile.TemporaryDirectory() as cache:
        gate, opening = os.pipe()
        processes = [start(program, device, cache, gate) for _ in range(PROCESSES)]
        os.close(gate)
        os.close(opening)
        counts = [finish(process) for process in processes]
        if any(compiled + loaded != KERNELS for compiled, loaded in counts):
            sys.exit(f"kernels compiled and loaded: {counts}")
        entries = sorted(path.name for path in pathlib.Path(cache, "kernels").iterdir())
        if len(entries) != KERNELS or not all(re.fullmatch(r"[0-9a-f]{32}\.kernel", name) for name in entries):
            sys.exit(f"the cache holds {entries}")
        again = finish(start(program, device, cache, subprocess.DEVNULL))
        if again != (0, KERNELS):
            sys.exit(f"a further start compiled and loaded {again}")
        return sum(compiled for compiled, _ in counts)


def warm(program, device):
    """One start alone. PoCL has a cache of its own below this one, which many processes must not fill at once: of 16 on an empty one
    some fail to build a kernel, or crash."""
    with tempfile.TemporaryDirectory() as cache:
        finish(start(program, device, cache, subprocess.DEVNULL))


def main(program, rounds, *devices):
    for device in devices or ("cuda", "opencl"):
        warm(program, device)
        begin = time.monotonic()
        compiled = [race(program, device) for _ in range(int(rounds))]
        print(f"{device}: {len(compiled)} rounds of {PROCESSES} starts, {min(compiled)} to {max(compiled)} of "
              f"{PROCESSES * KERNELS} kernels compiled, the others loaded; no torn entry, no wrong result; "
              f"{time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
