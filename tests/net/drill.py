#!/usr/bin/env python3
"""The fault drill: of three ranks on three hosts a random one is killed, stopped or cut off from the network, at a random time.

    drill.py HONE ASSETS DATA [TRIALS]

Each host is a namespace of its own (rig.py), and a cut takes its interface down. Shown in every trial:

    the others end within 10 seconds and name the rank, with exit code 12 where mpirun does not kill them first
    the rank that is cut off ends too: it misses the others
    nothing is left on any host, neither ranks nor what MPI started them with
    the same command goes on from the last checkpoint to the bytes of a run that was never disturbed

Faults come in turn, so that three trials have one of each; the rank and the moment are drawn. Seen to fail: without
net.ipv4.tcp_retries2, with a daemon of Open MPI that stays on the host that was cut off.
"""
import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import rig

HONE, ASSETS, DATA = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
TRIALS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
RANKS, GONE, SECONDS_MAX, LEFT_MAX = 3, 12, 10, 60
FAULTS = "kill", "stop", "cut"
# A rank's own exit code, though mpirun asks all to end as soon as one has ended.
KEEP = 'trap "" TERM; "$@"; echo $? > "$0/code-$OMPI_COMM_WORLD_RANK"'
TRAIN = ["--max-steps", 24, "--save-steps", 5, "--save-total-limit", 2, "--per-device-train-batch-size", 12, "--max-samples", 200,
         "--max-length", 128, "--excess-length", "truncate", "--micro-batch-tokens", 256, "--learning-rate", 0.01, "--device", "cpu",
         "--threads", 1, "--json"]


class Run:
    """A run on the hosts, in a folder of its own."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, folder
        folder.mkdir(exist_ok=True)
        self.before = set(self.processes())
        words = ["sh", "-c", KEEP, folder, HONE, "train", "--model", ASSETS / "models/tiny-llama", "--data", DATA / "train.jsonl",
                 "--output", folder / "out", "--cache-dir", folder.parent / "cache", *TRAIN]
        self.told = open(folder / "stderr", "w", encoding="utf-8")
        self.launcher = rig.mpirun(hosts, words, folder, start=hosts[0].popen, stdout=subprocess.DEVNULL, stderr=self.told)

    def processes(self):
        return [p for host in self.hosts for p in rig.processes_of(host)]

    def left(self):
        """What still runs on the hosts."""
        found = {}
        for pid in set(self.processes()) - self.before:
            try:
                state, command = state_of(pid), pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if state not in "ZX":
                found[pid] = b" ".join(command[:3]).decode()
        return found

    def rank(self, number):
        """The process of a rank: one on each host."""
        for pid in rig.processes_of(self.hosts[number]):
            if os.path.realpath(f"/proc/{pid}/exe") == str(HONE):
                return pid
        raise AssertionError(f"rank {number} does not run")

    def wait_for_step(self, step):
        path = self.folder / "out/metrics.jsonl"
        while not (path.exists() and f'"step":{step},' in path.read_text().replace(" ", "")):
            assert self.launcher.poll() is None, self.words()
            time.sleep(0.02)

    def codes(self):
        return {int(p.name[5:]): int(p.read_text() or -1) for p in self.folder.glob("code-*")}

    def wait_for_ranks(self, pids, seconds):
        """Until all of these ranks have ended: with a code, or without one where mpirun was faster and has killed them."""
        begun = time.monotonic()
        while alive := [rank for rank, pid in pids.items() if rank not in self.codes() and os.path.exists(f"/proc/{pid}")]:
            assert time.monotonic() - begun < seconds, f"ranks {alive} hang: {self.words()}"
            time.sleep(0.02)
        return time.monotonic() - begun

    def wait_until_gone(self, seconds):
        begun = time.monotonic()
        while self.left() or self.launcher.poll() is None:
            assert time.monotonic() - begun < seconds, f"left: {self.left()}, {self.words()}"
            time.sleep(0.05)
        return time.monotonic() - begun

    def words(self):
        self.told.flush()
        return (self.folder / "stderr").read_text()

    def result(self):
        return {p.name: p.read_bytes() for p in (self.folder / "out").glob("*.safetensors")}


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]


def strike(run, fault, rank):
    if fault == "cut":
        run.hosts[rank].tell("ip", "link", "set", "net0", "down")
    else:
        os.kill(run.rank(rank), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def mend(run, rank):
    run.hosts[rank].tell("ip", "link", "set", "net0", "up")


def whole(hosts, folder):
    run = Run(hosts, folder)
    run.wait_until_gone(120)
    assert set(run.codes().values()) == {0}, run.words()
    return run.result()


def trial(hosts, folder, draw, fault, want):
    """How long the others took to end, and how long until nothing was left."""
    run, rank = Run(hosts, folder), draw.randrange(RANKS)
    run.wait_for_step(draw.randrange(6, 16))
    name = f"rank {rank} (process {run.rank(rank)} on {hosts[rank].name})"
    others = {r: run.rank(r) for r in range(RANKS) if r != rank or fault == "cut"}
    strike(run, fault, rank)
    took = run.wait_for_ranks(others, LEFT_MAX)
    gone = took + run.wait_until_gone(LEFT_MAX)
    said, codes = run.words(), run.codes()
    assert took < SECONDS_MAX, f"{fault} of rank {rank}: the others ended after {took:.1f} s"
    assert {codes[r] for r in others if r in codes} == {GONE}, f"{fault} of rank {rank}: {codes}"
    if fault == "cut":
        mend(run, rank)
    if fault != "cut" or rank:                          # where rank 0 is cut off, mpirun is too, and hears nothing
        assert name in said, f"{fault} of rank {rank}: {name} is not named: {said}"
    for path in folder.glob("code-*"):
        path.unlink()
    assert whole(hosts, folder) == want, f"{fault} of rank {rank}: the run did not go on to the same bytes"
    return rank, took, gone


def main():
    reason = rig.missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    draw, slowest = random.Random(16), collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as work, rig.network(RANKS, delay=0, rate=0) as hosts:
        want = whole(hosts, pathlib.Path(work) / "whole")
        assert want
        for number in range(TRIALS):
            fault, folder = FAULTS[number % len(FAULTS)], pathlib.Path(work) / f"trial-{number}"
            rank, took, gone = trial(hosts, folder, draw, fault, want)
            slowest[fault].append((took, gone))
            print(f"trial {number}: {fault} rank {rank}: the others ended after {took:.1f} s, all was gone after {gone:.1f} s", flush=True)
            shutil.rmtree(folder)
    for fault, times in slowest.items():
        print(f"{fault}: {len(times)} trials, the others ended after at most {max(t for t, _ in times):.1f} s, all was gone after at most "
              f"{max(g for _, g in times):.1f} s")


if __name__ == "__main__":
    main()
