#!/usr/bin/env python3
"""What a disk can do to a run: lose what was not flushed, tear it, fill up, fail.

    storage.py HONE SHIM ASSETS [--every N] [--jobs N]

A run of a tiny model, with checkpoints and a cache of tokens, is made under a layer that keeps a journal of every change to files
(shim.c). From the journal the state of the disk is made up that a crash after each call may leave, in three ways:

    lost     nothing that was not flushed is there: neither bytes nor names
    names    all names are there, but of the bytes only those that were flushed
    torn     all names, and half of the bytes that were not flushed

In each the same command is given again: it must end with the same adapter, and from no earlier step than the last checkpoint that
the run had finished writing. Then every call fails in turn, once with ENOSPC and once with EIO, and from then on with ENOSPC: the
run ends with a message or with the same adapter, and the same command given again ends with it.

--every N takes only each N-th call, and --jobs N has as many runs at once.
"""
import argparse
import concurrent.futures
import errno
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures

STEPS = 6


def chat(i):
    return {"messages": [{"role": "user", "content": f"What is number {i}?"},
                         {"role": "assistant", "content": " ".join(f"{i * k % 97} packages" for k in range(1, 4 + i % 5))}]}


def write_chats(folder, count):
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(chat(i)) + "\n" for i in range(count)))
    return path


def tied(command, **environment):
    """The same command, killed when this process ends, however it does. The environment is only the command's: a layer in it must not
    see what ties it."""
    return list(map(str, ["setpriv", "--pdeathsig", "KILL", "env", *(f"{name}={value}" for name, value in environment.items()), *command]))


class File:
    def __init__(self):
        self.now, self.flushed = bytearray(), b""


class Folder:
    def __init__(self):
        self.now, self.flushed = {}, {}


class Disk:
    """Replays a journal."""

    def __init__(self, root):
        self.root, self.prefix, self.open = Folder(), root + "/", {}

    def find(self, path):
        folder = self.root
        parts = path[len(self.prefix):].split("/") if path.startswith(self.prefix) else []
        for part in parts[:-1]:
            folder = folder.now[part]
        return folder, parts[-1] if parts else None

    def at(self, path):
        folder, name = self.find(path)
        return folder.now[name] if name else folder

    def do(self, kind, words, data):
        if kind == "open":
            folder, name = self.find(words[2])
            if words[1] == "0":
                folder.now[name] = folder.now.get(name) or File()
                folder.now[name].now = bytearray()
            self.open[words[0]] = folder.now[name]
        elif kind == "opendir":
            self.open[words[0]] = self.at(words[1])
        elif kind == "write":
            file, at = self.open[words[0]], int(words[1])
            file.now[at:at + len(data)] = data
        elif kind == "cut":
            del self.open[words[0]].now[int(words[1]):]
        elif kind == "shorten":
            del self.at(words[1]).now[int(words[0]):]
        elif kind == "sync":
            thing = self.open[words[0]]
            thing.flushed = dict(thing.now) if isinstance(thing, Folder) else bytes(thing.now)
        elif kind == "rename":
            (old, a), (new, b) = self.find(words[0]), self.find(words[1])
            new.now[b] = old.now.pop(a)
        elif kind == "exchange":
            (old, a), (new, b) = self.find(words[0]), self.find(words[1])
            new.now[b], old.now[a] = old.now[a], new.now[b]
        elif kind in ("unlink", "rmdir"):
            folder, name = self.find(words[0])
            folder.now.pop(name, None)
        elif kind == "mkdir":
            folder, name = self.find(words[0])
            folder.now[name] = Folder()

    def write(self, way, to, folder=None):
        """The files that a crash leaves."""
        folder = folder or self.root
        to.mkdir(exist_ok=True)
        for name, thing in (folder.flushed if way == "lost" else folder.now).items():
            if isinstance(thing, Folder):
                self.write(way, to / name, thing)
                continue
            n, more = len(thing.flushed), max(0, len(thing.now) - len(thing.flushed))
            (to / name).write_bytes(thing.flushed if way != "torn" else bytes(thing.now[:n + more // 2]))


def read_journal(path):
    """(kind, words, data) of each call."""
    bytes_, at, calls = path.read_bytes(), 0, []
    while at < len(bytes_):
        end = bytes_.index(b"\n", at)
        kind, *words = bytes_[at:end].decode().split(" ")
        at = end + 1
        data = b""
        if kind == "write":
            data = bytes_[at:at + int(words[2])]
            at += len(data)
        calls.append((kind, words, data))
    return calls


class Campaign:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.data = write_chats(work, 12)
        self.runs = self.bad = 0
        self.lock, self.free = threading.Lock(), threading.Semaphore(2 * args.jobs)
        self.pool, self.futures = concurrent.futures.ThreadPoolExecutor(args.jobs), []

    def start(self, check, disk, *more):
        """Checks a disk, which is removed then, as soon as a job is free; not many of them wait."""
        def job():
            try:
                check(disk, *more)
                shutil.rmtree(disk)
            finally:
                self.free.release()
        self.free.acquire()
        self.futures.append(self.pool.submit(job))

    def wait(self):
        for future in self.futures:
            future.result()
        self.futures = []

    def train(self, disk, **more):
        """In disk/: out and cache."""
        command = [self.args.hone, "train", "--model", self.args.assets / "models/tiny-llama", "--data", self.data, "--json",
                   "--output", disk / "out", "--cache-dir", disk / "cache", "--max-steps", STEPS, "--save-steps", 2,
                   "--save-total-limit", 2, "--per-device-train-batch-size", 2, "--threads", 1, "--device", "cpu",
                   "--confine", "off"]      # the layer writes elsewhere, and an image may be anywhere
        with self.lock:
            self.runs += 1
        return subprocess.run(tied(command, **more), capture_output=True, text=True, timeout=120)

    def complain(self, text):
        with self.lock:
            self.bad += 1
            print("BAD", text, flush=True)

    def result(self, disk):
        return (disk / "out/adapter_model.safetensors").read_bytes()

    def under(self, disk, **more):
        return self.train(disk, LD_PRELOAD=self.args.shim, STORAGE_ROOT=disk, **more)

    def check_again(self, disk, want, name, least=0):
        done = self.train(disk)
        if done.returncode:
            self.complain(f"{name}: the same command ends with {done.returncode}: {done.stderr.strip()}")
        elif self.result(disk) != want:
            self.complain(f"{name}: another adapter")
        elif json.loads(done.stdout)["resumed_step"] < least:
            self.complain(f"{name}: the checkpoint of step {least} is lost: {done.stderr.strip()}")

    def crashes(self, calls, disk, want):
        prefix, finished = str(disk), 0
        model, renamed = Disk(prefix), None
        model.root.now["out"] = model.root.flushed["out"] = Folder()    # made before the run
        for i, (kind, words, data) in enumerate(calls):
            model.do(kind, words, data)
            match = kind in ("rename", "exchange") and re.search(r"/out/checkpoint-(\d+)$", words[1])
            renamed = int(match[1]) if match else renamed
            if kind == "sync" and renamed and model.open[words[0]] is model.at(prefix + "/out"):
                finished, renamed = renamed, None
            if i % self.args.every:
                continue
            for way in ("lost", "names", "torn"):
                image = self.work / f"image-{i}-{way}"
                model.write(way, image)
                self.start(self.check_again, image, want, f"crash after call {i} ({kind} {' '.join(words)}), {way}", finished)
        self.wait()

    def check_fault(self, disk, want, text):
        (disk / "out").mkdir(parents=True)
        done = self.under(disk, STORAGE_FAIL=text)
        if done.returncode < 0:
            self.complain(f"fault {text}: ended by signal {-done.returncode}")
        if done.returncode > 0 and not done.stderr.strip().splitlines()[-1].startswith("hone: "):
            self.complain(f"fault {text}: no message: {done.stderr.strip()}")
        if done.returncode == 0 and self.result(disk) != want:
            self.complain(f"fault {text}: another adapter")
        self.check_again(disk, want, f"after fault {text}")
        left = [str(p.relative_to(disk)) for p in disk.rglob("*") if ".part" in p.name and "cache" not in p.parts]
        if left:
            self.complain(f"after fault {text}: {left} are left")

    def faults(self, count, want):
        for call in range(1, count + 1, self.args.every):
            for text in (f"{call} {errno.ENOSPC}", f"{call} {errno.EIO}", f"{call}+ {errno.ENOSPC}"):
                self.start(self.check_fault, self.work / f"fault-{text.replace(' ', '-')}", want, text)
        self.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("hone", "shim", "assets"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(args, pathlib.Path(work).resolve())
        disk = campaign.work / "whole"
        (disk / "out").mkdir(parents=True)
        journal, counted = campaign.work / "journal", campaign.work / "count"
        done = campaign.under(disk, STORAGE_JOURNAL=journal, STORAGE_COUNT=counted)
        if done.returncode:
            raise SystemExit(done.stderr)
        want, calls, count = campaign.result(disk), read_journal(journal), int(counted.read_text())
        campaign.crashes(calls, disk, want)
        crashed = campaign.runs
        campaign.faults(count, want)
        print(f"{len(calls)} changes of files: {crashed - 1} runs after crashes; {count} calls that may fail: {campaign.runs - crashed} runs "
              f"with faults and after them; {campaign.bad} bad")
        figures.record("Failing disks", "`hone train`", changes_of_files=len(calls), runs_after_crashes=crashed - 1, calls_that_may_fail=count,
                       runs_with_faults=campaign.runs - crashed, bad=campaign.bad)
        raise SystemExit(campaign.bad > 0)


if __name__ == "__main__":
    main()
