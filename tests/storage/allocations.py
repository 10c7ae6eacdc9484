#!/usr/bin/env python3
"""What a machine without memory can do to hone: every allocation fails, wherever it is made.

    allocations.py HONE SHIM ASSETS [--every N] [--only NAME]

A first run of each command, under a layer that knows the call stack of every allocation (allocations.c), gives the distinct stacks
and when each is met first. Then there are two runs for each stack: that allocation fails, and that one and all after it fail. A
run ends

    done       as if nothing had failed: with the same result
    clean      with exit code 5 and a message
    onednn     with exit code 5 and the message that oneDNN crashed, whose own code is not hone's

All else is bad: a crash, a hang, another exit code, another result, and memory that is still held at the end by a stack that holds
less after the first run, unless the stack is oneDNN's own.

A stack is tried in the first command that has it. Those inside oneDNN end with the function that calls it, and come last.
--every N takes only each N-th stack, and of oneDNN's each 20 N-th. Files are in memory where the system has a place for that, as
flushing them to a disk takes longer than the run.
"""
import argparse
import collections
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from storage import tied, write_chats

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures

OUT_OF_MEMORY, SECONDS_MAX, OTHER_EVERY = 5, 600, 20
IN_MEMORY = pathlib.Path("/dev/shm")
COLUMNS = {"done": "done", "clean": "failed_cleanly", "onednn": "onednn", "bad": "bad"}      # outcomes, in tests/RESULTS.md


class Log:
    """What the layer wrote."""

    def __init__(self, path):
        self.stacks, self.order, self.left, self.crash = {}, [], [], None
        for line in path.read_text().splitlines() if path.exists() else ():
            kind, *words = line.split(" ")
            if kind == "stack":
                self.stacks[int(words[0])] = tuple(words[1:])
            elif kind == "order":
                self.order = list(map(int, words))
            elif kind == "left":
                self.left.append(tuple(map(int, words)))
            elif kind == "crash":
                self.crash = tuple(words)


class Command:
    """A command line, and what it leaves that must be the same in every run that succeeds."""

    def __init__(self, campaign, name, words, result=lambda here, said: said):
        self.campaign, self.name, self.words, self.result = campaign, name, words, result
        self.outcomes = collections.Counter()

    def run(self, fail=None):
        """Its outcome, log and result."""
        work = self.campaign.work
        here, log = work / "here", work / "log"
        shutil.rmtree(here, ignore_errors=True)
        log.unlink(missing_ok=True)
        (here / "out").mkdir(parents=True)
        environment = {"LD_PRELOAD": self.campaign.args.shim, "ALLOCATIONS_LOG": log, "HOME": work, "XDG_CACHE_HOME": here / "cache",
                       **({"ALLOCATIONS_FAIL": fail} if fail else {})}
        words = [self.campaign.args.hone, *(str(w).replace("HERE", str(here)) for w in self.words)]
        try:
            done = subprocess.run(tied(words, **environment), capture_output=True, text=True, errors="replace", timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return None, Log(log), None
        return done, Log(log), self.result(here, done.stdout) if done.returncode == 0 else None

    def judge(self, done, log, result):
        """The outcome, and what is bad about it."""
        if done is None:
            return "bad", "hangs"
        said = done.stderr.strip().splitlines()
        if done.returncode < 0:
            return "bad", f"ends by signal {-done.returncode} at {self.campaign.frames(log.crash or ())}"
        if done.returncode == 0:
            return ("done", None) if result == self.want else ("bad", "ends well with another result")
        if done.returncode != OUT_OF_MEMORY or not said or not said[-1].startswith("hone: "):
            return "bad", f"ends with {done.returncode}: {said[-1] if said else 'no message'}"
        return "onednn" if said[-1].startswith("hone: oneDNN") else "clean", None

    def held(self, log, first):
        """How many allocations each stack still holds; those before the failure are as in the first run."""
        numbers = collections.Counter()
        for number, stack in log.left:
            numbers[log.stacks[stack] if stack >= 0 else first.stacks[first.order[number]]] += 1
        return numbers

    def start(self):
        """The first run: which stacks there are, and the number of the first allocation of each."""
        done, self.first, self.want = self.run()
        if done.returncode:
            raise SystemExit(f"{self.name}: {done.stderr}")
        self.kept = self.held(self.first, self.first)
        self.begins = {}
        for number, stack in enumerate(self.first.order):
            self.begins.setdefault(cut(self.first.stacks[stack]), number)
        new = [stack for stack in self.begins if stack not in self.campaign.tried]
        self.campaign.tried.update(new)
        return [stack for stack in new if not is_onednn(stack)], [stack for stack in new if is_onednn(stack)]

    def fail_at(self, stacks, of):
        """Two runs for each of these stacks."""
        outcomes = collections.Counter()
        for stack, end in itertools.product(stacks, ("", "+")):
            fail = f"{self.begins[stack]}{end}"
            done, log, result = self.run(fail)
            outcome, why = self.judge(done, log, result)
            leaks = [s for s, n in self.held(log, self.first).items() if n > self.kept[s] and not is_onednn(s)]
            if outcome == "clean" and leaks:
                outcome, why = "bad", "leaks " + "; ".join(map(self.campaign.frames, leaks[:3]))
            outcomes[outcome] += 1
            if why:
                print(f"BAD {self.name}: allocation {fail} at {self.campaign.frames(stack)}\n    {why}", flush=True)
        counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items()))
        print(f"{self.name}: {len(self.first.order)} allocations, {len(stacks)} new stacks of {of}: {counts}", flush=True)
        self.outcomes += outcomes
        return outcomes["bad"]

    def record(self, own, other):
        """With HONE_RECORD, in tests/RESULTS.md."""
        figures.record("Failing allocations", f"`{self.name}`", allocations=len(self.first.order), new_stacks=own + other, of_them_in_oneDNN=other,
                       **{cell: self.outcomes[outcome] for outcome, cell in COLUMNS.items()})


def file_of(frame):
    return frame.rpartition("+")[0].rsplit("/")[-1]


def cut(stack):
    """A stack of oneDNN ends with the function that calls it."""
    inside = [i for i, frame in enumerate(stack) if file_of(frame).startswith("libdnnl")]
    return stack[:max(inside) + 2] if inside else stack


def is_onednn(stack):
    """Whether the allocation is one of oneDNN's, or of the libraries that it calls."""
    inner = next((f for f in map(file_of, stack) if not f.startswith(("libc.", "libstdc++", "libgomp", "libgcc"))), "")
    return inner.startswith("libdnnl")


class Campaign:
    def __init__(self, args, work):
        self.args, self.work, self.names, self.tried = args, work, {}, set()

    def name(self, frame):
        """The function of a frame."""
        if frame not in self.names:
            file, _, offset = frame.rpartition("+")
            self.names[frame] = file_of(frame)
            if offset:
                told = subprocess.run(["addr2line", "-f", "-e", file, hex(int(offset, 16) - 1)], capture_output=True, text=True)
                function = told.stdout.split("\n")[0]
                if function and function != "??":
                    self.names[frame] = function
        return self.names[frame]

    def frames(self, stack):
        return " < ".join(map(self.name, stack[:12]))

    def commands(self):
        model, data, threads = self.args.assets / "models/tiny-llama", write_chats(self.work, 12), ["--threads", 1, "--device", "cpu"]
        train = ["train", "--model", model, "--data", data, "--output", "HERE/out", "--cache-dir", "HERE/cache", "--max-steps", 2,
                 "--save-steps", 1, "--val-set-size", 2, "--eval-steps", 1, "--per-device-train-batch-size", 2, *threads]
        adapter = self.work / "adapter"
        subprocess.run(tied([self.args.hone, *train, "--output", adapter, "--cache-dir", self.work / "cache"]), check=True, capture_output=True)

        def trained(here, said):
            return [(here / "out" / name).read_bytes() for name in ("adapter_model.safetensors", "adapter_config.json")]

        def evaluated(here, said):
            try:
                return {key: value for key, value in json.loads(said).items() if "bytes" not in key and "seconds" not in key}
            except ValueError:
                return said

        return [Command(self, "train", train, trained),
                Command(self, "qlora", [*train, "--finetuning-type", "qlora"], trained),
                Command(self, "eval", ["eval", "--model", model, "--adapter", adapter, "--data", data, "--json", *threads],
                        evaluated),
                Command(self, "inspect model", ["inspect", "model", "--model", model]),
                Command(self, "inspect data", ["inspect", "data", "--model", model, "--data", data, "--html", "HERE/page.html"]),
                Command(self, "generate", ["generate", "--model", model, "--adapter", adapter, "--prompt", "Hello", "--max-new-tokens",
                                           4, *threads])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("hone", "shim", "assets"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as work:
        commands = [c for c in Campaign(args, pathlib.Path(work).resolve()).commands() if args.only in (None, c.name)]
        stacks = [command.start() for command in commands]
        bad = sum(command.fail_at(own[::args.every], "hone") for command, (own, _) in zip(commands, stacks))
        every = args.every if args.every == 1 else args.every * OTHER_EVERY
        bad += sum(command.fail_at(other[::every], "oneDNN") for command, (_, other) in zip(commands, stacks))
        for command, (own, other) in zip(commands, stacks):
            command.record(len(own[::args.every]), len(other[::every]))
        raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
