#!/usr/bin/env python3
"""Two ranks with 50 ms and 100 Mbit/s between them: data parallel in every step, and --sync-every 20, side by side.

    slow.py HONE ASSETS DATA [--large]

Without --large: a tiny model. With it: SmolLM2, whose adapter of 4.9 million parameters fills the link.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import rig

HONE, ASSETS, DATA = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
LARGE = "--large" in sys.argv
MODEL, STEPS, RATE = ("smollm2", 100, 2e-4) if LARGE else ("tiny-llama", 100, 1e-3)
MARGIN = 1.01           # docs/ranks.md has what was measured
WAYS = {"every step": [], "--sync-every 20": ["--sync-every", 20],
        "--sync-every 20 --sync-int8": ["--sync-every", 20, "--sync-int8"]}


def sent(host):
    return int(host.run(["cat", "/sys/class/net/net0/statistics/tx_bytes"], capture_output=True, text=True, check=True).stdout)


def train(flags):
    """The result of a run, the loss of its adapter, and the bytes that a host sent."""
    with tempfile.TemporaryDirectory() as folder, rig.network(2, delay=0.05, rate=100e6) as hosts:
        words = [HONE, "train", "--model", ASSETS / "models" / MODEL, "--data", DATA / "train.jsonl", "--output", f"{folder}/out", "--max-samples",
                 1600, "--max-steps", STEPS, "--per-device-train-batch-size", 8, "--max-length", 128, "--excess-length", "truncate",
                 "--micro-batch-tokens", 512, "--save-steps", 0, "--learning-rate", RATE, "--device", "cpu", "--json", "--cache-dir",
                 f"{folder}/cache", *flags]
        done = rig.mpirun(hosts, words, folder, capture_output=True, text=True, timeout=3000)
        assert done.returncode == 0, done.stderr
        traffic = sent(hosts[0])
        judged = subprocess.run([HONE, "eval", "--model", ASSETS / "models" / MODEL, "--adapter", f"{folder}/out", "--data",
                                 DATA / "valid.jsonl", "--max-length", "128", "--excess-length", "truncate", "--device", "cpu", "--json"],
                                capture_output=True, text=True, check=True)
        return json.loads(done.stdout), json.loads(judged.stdout)["loss"], traffic


def main():
    reason = rig.missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    found = {}
    print(f"{MODEL}, {STEPS} steps, 2 ranks, 50 ms each way, 100 Mbit/s")
    for name, flags in WAYS.items():
        result, loss, traffic = found[name] = train(flags)
        print(f"{name:30} {result['seconds']:7.1f} s, validation loss {loss:.4f}, {traffic / 1e6:8.2f} MB sent by a rank", flush=True)
    (plain, best, most), ways = found["every step"], [way for name, way in found.items() if name != "every step"]
    for result, loss, traffic in ways:
        assert loss < MARGIN * best, f"the validation loss is not within {MARGIN} of that of data parallel steps"
        assert traffic < most / 10, "communication does not fall by ten"
        assert result["seconds"] < plain["seconds"], "it is not faster"


if __name__ == "__main__":
    main()
