#!/usr/bin/env python3
"""Runs that are killed: none is lost, and each ends with the bytes of one that was not.

    kills.py HONE ASSETS [--kills N] [--seed N]

A run of a tiny model saves after every fourth step. It is killed (SIGKILL) and started again by the same command until N kills were
made: every other one inside a save, the others at a random moment. Whenever a run has ended its adapter is compared, and a new one
starts over it: in the same folder by --resume none, or in a new one. Now and then a second run is started into the same folder, which
must be refused. No run may find a checkpoint damaged. With HONE_RECORD the figures go to tests/RESULTS.md.
"""
import argparse
import contextlib
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import storage

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures

STEPS = 40


class Kills:
    def __init__(self, args, work):
        self.args, self.random = args, random.Random(args.seed)
        self.data, self.out, self.cache = storage.write_chats(work, 32), work / "out", work / "cache"
        self.made = {"inside a save": 0, "elsewhere": 0}
        self.bad = self.ended = self.over = self.refused = 0
        self.left, self.whole = set(), 0                    # what the run before left; seconds that one takes

    def command(self, out, *more):
        return storage.tied([self.args.hone, "train", "--model", self.args.assets / "models/tiny-llama", "--data", self.data, "--json",
                             "--output", out, "--cache-dir", self.cache, "--max-steps", STEPS, "--save-steps", 4, "--device", "cpu",
                             "--per-device-train-batch-size", 16, "--threads", 1, *more])

    def complain(self, text):
        self.bad += 1
        print("BAD", text)

    def newest(self):
        return max((int(p.name.split("-")[1]) for p in self.out.glob("checkpoint-*") if p.name.split("-")[1].isdigit()), default=0)

    def parts(self):
        """Checkpoints that are not complete, and when something was last done there."""
        found = set()
        for path in self.out.glob("checkpoint-*.part"):
            with contextlib.suppress(FileNotFoundError):    # it is complete by now
                found.add((path.name, path.stat().st_ctime_ns))
        return found

    def is_inside_a_save(self):
        """Not where a killed run was: what it left stays until another one saves there."""
        return bool(self.parts() - self.left)

    def is_refused(self, code, err):
        refused = code == 2 and "another run is writing there" in err
        self.refused += refused
        return refused

    def race(self):
        """A second run into the same folder: whether it was refused, and not the first one."""
        done = subprocess.run(self.command(self.out), capture_output=True, text=True, timeout=120)
        if done.returncode and not self.is_refused(done.returncode, done.stderr):
            self.complain(f"a second run ended with {done.returncode}: {done.stderr.strip()}")
        return done.returncode != 0

    def run(self, *more):
        """Starts a run and kills it, unless it ends before; whether it was killed."""
        inside, self.left = sum(self.made.values()) % 2 == 0, self.parts()
        process = subprocess.Popen(self.command(self.out, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait, start, first = self.random.uniform(0, self.whole), time.monotonic(), True
        if self.random.random() < 0.1:
            while process.poll() is None and not (self.out / "run.lock").exists():
                time.sleep(0.0005)
            first = self.race()
        while process.poll() is None and (not self.is_inside_a_save() if inside else time.monotonic() - start < wait):
            time.sleep(0.0002)
        if inside and process.poll() is None:
            time.sleep(self.random.uniform(0, 0.004))
        if process.poll() is None:
            self.made["inside a save" if self.is_inside_a_save() else "elsewhere"] += 1
            process.kill()
        _, err = process.communicate()
        if process.returncode not in (0, -9) and (first or not self.is_refused(process.returncode, err)):
            self.complain(f"a run ended with {process.returncode}: {err.strip()}")
        if "cannot be used" in err:
            self.complain(f"a checkpoint is damaged: {err.strip()}")
        return process.returncode != 0 and first

    def check_end(self, want):
        self.ended += 1
        if (self.out / "adapter_model.safetensors").read_bytes() != want:
            self.complain("a run that was killed ended with another adapter")
        if self.random.random() < 0.5:
            shutil.rmtree(self.out)
            return ()
        self.over += 1
        return ("--resume", "none")

    def all(self):
        start = time.monotonic()
        subprocess.run(self.command(self.out), check=True, capture_output=True)
        self.whole = time.monotonic() - start
        want = (self.out / "adapter_model.safetensors").read_bytes()
        shutil.rmtree(self.out)
        more = ()
        while sum(self.made.values()) < self.args.kills:
            before = self.newest() if not more else 0
            killed = self.run(*more)
            if killed and not more and self.newest() < before:
                self.complain(f"the checkpoint of step {before} was lost")
            if not killed:
                more = self.check_end(want)
            elif more and (self.out / "metrics.jsonl").exists() and self.newest() <= 4:
                continue                                    # perhaps before it put the older run aside: start over once more
            else:
                more = ()
        done = subprocess.run(self.command(self.out), capture_output=True, text=True)
        if done.returncode or (self.out / "adapter_model.safetensors").read_bytes() != want:
            self.complain(f"the last run: {done.returncode} {done.stderr.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("hone", type=pathlib.Path)
    parser.add_argument("assets", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        kills = Kills(args, pathlib.Path(work))
        kills.all()
        print(f"kills: {kills.made}; {kills.ended} runs ended, {kills.over} started over an older one, {kills.refused} second runs "
              f"were refused; {kills.bad} bad")
        figures.record("Kills", "`hone train`", kills=sum(kills.made.values()), inside_a_save=kills.made["inside a save"], ended=kills.ended,
                       started_over=kills.over, second_runs_refused=kills.refused, bad=kills.bad)
        sys.exit(kills.bad > 0)


main()
