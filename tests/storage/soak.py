#!/usr/bin/env python3
"""A long run with many saves: at its end it has no more memory and no more open files than at its beginning.

    soak.py HONE ASSETS [--seconds N] [--save-seconds N]

A tiny model is trained for an hour. About every minute it is validated and asked for an answer, a checkpoint is saved and the oldest of
three is removed. Every step has all rows, so that none is larger than those before. Meanwhile memory and open descriptors of the process
are sampled: its own memory, since the system takes back pages of files when others need room. From the tenth save on it may vary by 1%,
and descriptors may be more than at first only during a save. At the end the run is asked to stop, and must have a checkpoint.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import storage

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures

WARM_SAVES, SAVES_MIN, VARIES_MAX = 10, 20, 0.01


class Soak:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.data = storage.write_chats(work, 24)
        self.samples = []                                   # (bytes, descriptors, saves)

    def command(self, out, steps, save_steps):
        return storage.tied([self.args.hone, "train", "--model", self.args.assets / "models/tiny-llama", "--data", self.data, "--json",
                             "--val-set-size", 8, "--eval-steps", save_steps, "--sample-prompt", "What is number 3?", "--sample-length", 48,
                             "--output", self.work / out, "--cache-dir", self.work / "cache", "--max-steps", steps, "--device", "cpu",
                             "--save-steps", save_steps, "--save-total-limit", 2, "--per-device-train-batch-size", 16])

    def steps_between_saves(self):
        """From the time that a step takes in a short run."""
        subprocess.run(self.command("short", 60, 60), check=True, capture_output=True)
        lines = [json.loads(line) for line in (self.work / "short/metrics.jsonl").open()]
        return max(5, round(self.args.save_seconds / statistics.median([line["step_seconds"] for line in lines if "loss" in line])))

    def sample(self, pid, save_steps):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        saved = [int(p.name.split("-")[1]) for p in (self.work / "out").glob("checkpoint-*") if p.name.split("-")[1].isdigit()]
        self.samples.append((int(re.search(r"RssAnon:\s*(\d+) kB", status)[1]) * 1024, len(os.listdir(f"/proc/{pid}/fd")),
                             max(saved, default=0) // save_steps))

    def saves(self):
        return self.samples[-1][2] if self.samples else 0

    def run(self):
        save_steps = self.steps_between_saves()
        process = subprocess.Popen(self.command("out", 10 ** 9, save_steps), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        start, seconds = time.monotonic(), self.args.seconds
        while process.poll() is None and time.monotonic() - start < (seconds if self.saves() >= SAVES_MIN else 10 * seconds):
            self.sample(process.pid, save_steps)
            time.sleep(min(1, self.args.save_seconds / 20))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        if process.returncode != 10:
            sys.exit(f"the run ended with {process.returncode}: {err.strip()}")
        return int(re.search(r"stopped after step (\d+); the state is in", err)[1])

    def check(self):
        steps = self.run()
        warm = [s for s in self.samples if s[2] >= WARM_SAVES]
        if self.saves() < SAVES_MIN:
            sys.exit(f"only {self.saves()} saves in {10 * self.args.seconds:.0f} s")
        memory, third = [s[0] for s in warm], len(warm) // 3
        files = [min(s[1] for s in part) for part in (warm[:third], warm[-third:])]     # one is outside of a save
        varies = max(memory) / min(memory) - 1
        print(f"{steps} steps, {self.saves()} saves, {len(warm)} samples from save {WARM_SAVES} on: memory {memory[0] / 1e6:.2f} MB at first, "
              f"{memory[-1] / 1e6:.2f} at last, {min(memory) / 1e6:.2f} to {max(memory) / 1e6:.2f} between, which is {varies:.2%} (at most "
              f"{VARIES_MAX:.0%}); descriptors {files[0]} at first, {files[1]} at last, at most {max(s[1] for s in warm)}")
        figures.record("Long runs", "`hone train`", seconds=f"{self.args.seconds:.0f}", steps=steps, saves=self.saves(),
                       memory=f"{min(memory) / 1e6:.2f} to {max(memory) / 1e6:.2f} MB ({varies:.2%})",
                       descriptors=f"{files[0]} at first, {files[1]} at last")
        return varies <= VARIES_MAX and files[0] == files[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("hone", type=pathlib.Path)
    parser.add_argument("assets", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--save-seconds", type=float, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        sys.exit(not Soak(args, pathlib.Path(work)).check())


main()
