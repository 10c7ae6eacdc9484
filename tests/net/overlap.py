#!/usr/bin/env python3
"""What ranks send while they compute: seconds of a step with and without (HONE_OVERLAP), of two ranks with a slow link between them.

    overlap.py HONE ASSETS [TURNS [MODEL]]

50 ms each way and 100 Mbit/s. LoRA's gradients of SmolLM2 are 19.5 MB a step; with --shard weights QLoRA also gathers the layers,
4 bits a weight, for the forward and for the backward pass. Both ways take turns, because the machine may be busy with other things
too; the median of each counts. Seconds of waiting must fall by a third. They do not for a tiny model without sharding, whose
backward pass is over before a packet has arrived.
"""
import json
import pathlib
import statistics
import sys
import tempfile

import rig

HONE, ASSETS = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
MODEL = sys.argv[4] if len(sys.argv) > 4 else "smollm2"
DELAY, RATE, STEPS = 0.05, 100e6, 2
METHODS = {"none": "lora", "gradients": "lora", "weights": "qlora"}


def bench(overlap, shard):
    words = ["env", f"HONE_OVERLAP={overlap}", HONE, "bench", "--model", ASSETS / "models" / MODEL, "--finetuning-type", METHODS[shard],
             "--max-length", 128, "--per-device-train-batch-size", 8, "--micro-batch-tokens", 512, "--max-steps", STEPS, "--threads", 1,
             "--device", "cpu", "--shard", shard, "--json"]
    with tempfile.TemporaryDirectory() as folder, rig.network(2, delay=DELAY, rate=RATE) as hosts:
        done = rig.mpirun(hosts, words, folder, capture_output=True, text=True, timeout=1500)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        return found["step_seconds"], found["communication"]["seconds_per_step"]


def main():
    reason = rig.missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    print(f"{MODEL}, 2 ranks with a thread each, {1000 * DELAY:g} ms each way, {RATE / 1e6:g} Mbit/s: seconds of a step, and of waiting")
    failed = []
    for shard, method in METHODS.items():
        found = {"off": [], "on": []}
        for _ in range(TURNS):
            for overlap, measured in found.items():
                measured.append(bench(overlap, shard))
                print(f"    {method} --shard {shard}, overlap {overlap}: {measured[-1][0]:.2f} s, {measured[-1][1]:.2f} s", flush=True)
        (off, off_waits), (on, on_waits) = ([statistics.median(column) for column in zip(*found[o])] for o in ("off", "on"))
        print(f"{method} --shard {shard}: {off:.2f} s and {off_waits:.2f} s without, {on:.2f} s and {on_waits:.2f} s with overlap", flush=True)
        if on_waits > off_waits * 2 / 3:
            failed.append(shard)
    sys.exit(f"communication does not overlap with computing: --shard {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
