#!/usr/bin/env python3
"""From a clone to a first adapter: first_adapter.py ASSETS [--limit SECONDS]

Clones this repository, builds it by `make` as README.md says, without a compiler cache, and trains an adapter of the tiny model on a
few chats. Processor seconds are what a busy machine does not change much, so the limit is one of them: 130 of them on two cores are
65 seconds and the last file's end, below the 90 that are promised. The time on the clock is printed, and counts on an idle machine.
"""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def step(name, *command, **options):
    """Runs it; (processor seconds, seconds)"""
    processor, clock = used(), time.monotonic()
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"first_adapter: {name} failed:\n{done.stdout[-2000:]}")
    took = used() - processor, time.monotonic() - clock
    print(f"{name:6} {took[0]:6.1f} s of processor time, {took[1]:6.1f} s", flush=True)
    return took


def slowest(log):
    """The object files that took longest, from ninja's log: start, end, -, name."""
    rows = [line.split("\t") for line in log.read_text().splitlines() if not line.startswith("#")]
    return sorted(((int(row[1]) - int(row[0])) / 1000, row[3].rpartition(".dir/")[2]) for row in rows if row[3].endswith(".o"))[:-6:-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("assets", type=pathlib.Path)
    parser.add_argument("--limit", type=float, default=130, help="processor seconds")
    args = parser.parse_args()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CMAKE_", "CCACHE_", "CFLAGS", "MAKE"))}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "hone")
        plain["HOME"] = plain["XDG_CACHE_HOME"] = temporary
        chats = (ROOT / "tests/data/debian-chat/train.jsonl").read_text(encoding="utf-8").splitlines(True)[:100]
        pathlib.Path(temporary, "chats.jsonl").write_text("".join(chats), encoding="utf-8")
        rows = [step("clone", "git", "clone", "-q", ROOT, folder, env=plain),
                step("make", "make", cwd=folder, env=plain),
                step("train", folder / "build/hone", "train", "--model", args.assets / "models/tiny-llama", "--data",
                     temporary + "/chats.jsonl", "--output", temporary + "/out", "--excess-length", "truncate", env=plain)]
        if not pathlib.Path(temporary, "out/adapter_model.safetensors").is_file():
            sys.exit("first_adapter: there is no adapter")
        if (folder / "build/.ninja_log").exists():
            print("longest on the clock: " + ", ".join(f"{name} {seconds:.0f} s" for seconds, name in slowest(folder / "build/.ninja_log")))
    processor, clock = (sum(column) for column in zip(*rows))
    cores = len(os.sched_getaffinity(0))
    print(f"clone to first adapter: {processor:.1f} s of processor time (at most {args.limit:.0f}), {clock:.1f} s on {cores} cores")
    if processor > args.limit:
        sys.exit("first_adapter: that is too long")


main()
