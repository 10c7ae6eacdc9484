#!/usr/bin/env python3
"""The fault drill: of three ranks on three hosts a random one is killed, stopped or cut off from the network, at a random time.

    drill.py HONE ASSETS DATA [TRIALS]

Each host is a namespace of its own (rig.py), and a cut takes its interface down. Shown in every trial:

    the others end within 10 seconds and name the rank, with exit code 12 where mpirun does not kill them first
    the rank that is cut off ends too: it misses the others
    nothing is left on any host, neither ranks nor what MPI started them with
    the same command goes on from the last checkpoint to the bytes of a run that was never disturbed

Faults come in turn, so that three trials have one of each; the rank and the moment are drawn. All trials are run, also after one
that fails. With each stand the machine's load and the longest that this script itself was not let run: a trial that fails while
others take the processors can be told from one that fails by hone's fault. Seen to fail: without net.ipv4.tcp_retries2, with a
daemon of Open MPI that stays on the host that was cut off.
"""
import collections
import contextlib
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
RANKS, GONE, SECONDS_MAX, LEFT_MAX, WHOLE_MAX = 3, 12, 10, 60, 600     # the last is no figure: others may have the processors
FAULTS = "kill", "stop", "cut"
# A rank's own exit code, though mpirun asks all to end as soon as one has ended.
KEEP = 'trap "" TERM; "$@"; echo $? > "$0/code-$OMPI_COMM_WORLD_RANK"'
TRAIN = ["--max-steps", 24, "--save-steps", 5, "--save-total-limit", 2, "--per-device-train-batch-size", 12, "--max-samples", 200,
         "--max-length", 128, "--excess-length", "truncate", "--micro-batch-tokens", 256, "--learning-rate", 0.01, "--device", "cpu",
         "--threads", 1, "--json"]


class Naps:
    """Short pauses, and by how much the longest of them was longer than it should be."""
    late = 0

    @classmethod
    def take(cls, seconds):
        begun = time.monotonic()
        time.sleep(seconds)
        cls.late = max(cls.late, time.monotonic() - begun - seconds)


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
            Naps.take(0.02)

    def codes(self):
        return {int(p.name[5:]): int(p.read_text() or -1) for p in self.folder.glob("code-*")}

    def wait_for_ranks(self, pids, seconds):
        """Until all of these ranks have ended: with a code, or without one where mpirun was faster and has killed them."""
        begun = time.monotonic()
        while alive := [rank for rank, pid in pids.items() if rank not in self.codes() and os.path.exists(f"/proc/{pid}")]:
            assert time.monotonic() - begun < seconds, f"ranks {alive} hang: {self.words()}"
            Naps.take(0.02)
        return time.monotonic() - begun

    def wait_until_gone(self, seconds):
        begun = time.monotonic()
        while self.left() or self.launcher.poll() is None:
            assert time.monotonic() - begun < seconds, f"left: {self.left()}, {self.words()}"
            Naps.take(0.05)
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


def repair(run, rank):
    run.hosts[rank].tell("ip", "link", "set", "net0", "up")


def clear(hosts):
    """Ends what a trial that failed has left, and repairs the network."""
    for host in hosts:
        for pid in rig.processes_of(host):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe") != os.readlink("/proc/self/exe"):    # the relay is a copy of this script
                    os.kill(pid, signal.SIGKILL)
        host.tell("ip", "link", "set", "net0", "up")


def whole(hosts, folder):
    run = Run(hosts, folder)
    run.wait_until_gone(WHOLE_MAX)
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
        repair(run, rank)
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
    draw, slowest, failed = random.Random(16), collections.defaultdict(list), 0
    with tempfile.TemporaryDirectory() as work, rig.network(RANKS, delay=0, rate=0) as hosts:
        want = whole(hosts, pathlib.Path(work) / "whole")
        assert want
        for number in range(TRIALS):
            fault, folder = FAULTS[number % len(FAULTS)], pathlib.Path(work) / f"trial-{number}"
            Naps.late = 0
            try:
                rank, took, gone = trial(hosts, folder, draw, fault, want)
                slowest[fault].append((took, gone))
                found = f"{fault} rank {rank}: the others ended after {took:.1f} s, all was gone after {gone:.1f} s"
            except AssertionError as reason:
                failed += 1
                found = f"FAILED: {reason}"
                clear(hosts)
            print(f"trial {number}: {found}; load {os.getloadavg()[0]:.1f}, this script waited up to {Naps.late:.2f} s", flush=True)
            shutil.rmtree(folder)
    for fault, times in slowest.items():
        print(f"{fault}: {len(times)} trials, the others ended after at most {max(t for t, _ in times):.1f} s, all was gone after at most "
              f"{max(g for _, g in times):.1f} s")
    sys.exit(f"{failed} of {TRIALS} trials failed" if failed else 0)


if __name__ == "__main__":
    main()
