#!/usr/bin/env python3
"""Encoding that is killed and started again gives the same bytes, in memory that does not grow with the data.

    data_resume.py HONE MODEL MEGABYTES [FOLDER]

Chats of that size are generated, encoded by `hone plan` without a disturbance and, into another cache, by runs of which two get
SIGKILL at a random moment. The caches must be the same byte by byte, and no run may take more than 300 MB. With 10000 that is
the large form; it needs the size of the data twice over next to it in FOLDER, which is emptied afterwards. The seed is
printed, and taken from $SEED where it is set.
"""
import filecmp
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from stop import stop_when

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures

HONE, MODEL, MEGABYTES = sys.argv[1], sys.argv[2], int(sys.argv[3])
BYTES_MAX = 300e6
WORDS = """package install the system of a service file which configuration to user network library version is and kernel in
    für naïve Größe 源代码 пакет system. Then, however; "quoted" (see below) /etc/apt/sources.list apt-get --yes 3.14""".split()


def generate(path, size, rng):
    """Texts are cut from a long one at random. What is written is a piece again and again, but with its number in every row, so that no two are
    alike."""
    text, rows, number = " ".join(rng.choice(WORDS) for _ in range(200_000)), [], 0
    for row in range(10_000):
        at, n = rng.randrange(len(text) - 4000), int(rng.paretovariate(1.3) * 200) % 4000
        rows.append(json.dumps({"messages": [{"role": "user", "content": f"@@@@@@-{row}: {text[at:at + 80]}?"},
                                             {"role": "assistant", "content": text[at + 80:at + 80 + n]}]}, ensure_ascii=row % 7 == 0) + "\n")
    piece = "".join(rows).encode()
    with open(path, "wb") as out:
        while number * len(piece) < size:
            out.write(piece.replace(b"@@@@@@", b"%06d" % number))
            number += 1
    return number * len(rows)


class Run:
    def __init__(self, data, cache):
        self.cache, self.start = cache, time.monotonic()
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([HONE, "plan", "--model", MODEL, "--data", data, "--cache-dir", cache, "--excess-length", "truncate",
                                         "--device", "cpu", "--json"], stdout=subprocess.PIPE, stderr=self.errors)

    def logged(self):
        """The bytes of the log of the cache being written."""
        return sum(log.stat().st_size for log in self.cache.glob("tokens/*.part/log"))

    def kill_after(self, logged):
        try:
            stop_when(self.process, lambda: self.logged() >= logged)
        except AssertionError:
            sys.exit(f"the run was over before it could be killed:\n{self.said()}")
        self.process.send_signal(signal.SIGKILL)
        return self.end(-signal.SIGKILL)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def end(self, code=0):
        """Seconds, and its peak memory."""
        out = self.process.stdout.read()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode != code:
            sys.exit(f"the run ended with {self.process.returncode} instead of {code}:\n{self.said()}")
        if "warning" in self.said():
            sys.exit(f"the run had to warn:\n{self.said()}")
        self.report = json.loads(out) if code == 0 else None
        self.peak = peak = usage.ru_maxrss * 1024
        print(f"  {time.monotonic() - self.start:7.1f} s, at most {peak / 1e6:.0f} MB, exit code {code}", flush=True)
        if peak > BYTES_MAX:
            sys.exit(f"that is more than {BYTES_MAX / 1e6:.0f} MB")


def files(cache):
    return sorted(p.relative_to(cache) for p in cache.rglob("*") if p.is_file())


def main(folder):
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    rng = random.Random(seed)
    data, whole, killed = folder / "chats.jsonl", folder / "whole", folder / "killed"
    rows = generate(data, MEGABYTES * 1_000_000, random.Random(1))
    print(f"{data.stat().st_size / 1e6:.0f} MB, {rows} rows, seed {seed}\nundisturbed", flush=True)
    run = Run(data, whole)
    run.end()
    figures.record("Encoding", f"{MEGABYTES} MB of rows", rows=rows, peak=f"{run.peak / 1e6:.0f} MB")
    account = run.report["data"]
    if account["rows_read"] != rows or account["kinds"] != {"messages": rows}:
        sys.exit(f"{rows} rows were written, the run says {account}")
    log = next(whole.glob("tokens/*/log")).stat().st_size
    print("killed twice, then to the end", flush=True)
    for part in (0, 0.45):
        Run(data, killed).kill_after((part + 0.05 + 0.4 * rng.random()) * log)
    run = Run(data, killed)
    if not run.logged():
        sys.exit("nothing was left to resume from")
    run.end()
    if run.report["data"] != account:
        sys.exit(f"the accounts differ: {account}, {run.report['data']}")
    if files(whole) != files(killed):
        sys.exit(f"{files(whole)} and {files(killed)} should be the same files")
    for name in files(whole):
        if not filecmp.cmp(whole / name, killed / name, shallow=False):
            sys.exit(f"{name} differs")
    print(f"the same {sum((whole / n).stat().st_size for n in files(whole)) / 1e6:.0f} MB in {len(files(whole))} files")
    print("undisturbed once more, from the cache", flush=True)
    Run(data, whole).end()


if __name__ == "__main__":
    parent = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hone-data-", dir=parent))
    try:
        main(folder)
    finally:
        shutil.rmtree(folder)
