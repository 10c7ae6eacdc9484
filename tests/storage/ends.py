#!/usr/bin/env python3
"""A campaign that is killed leaves no run: an hour's soak would train for ever.

    ends.py HONE ASSETS FOLDER

FOLDER has the layers of storage.py and allocations.py. Each campaign is started in a session of its own. Its first run is stopped, so that
it cannot end by itself, and the campaign is killed (SIGKILL): soon nothing of the session may be alive.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
SECONDS_MAX = 30


def alive(session, program=None):
    """The processes of a session that have not ended, or those of them that run this program, without helpers, which end with them."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            start, _, rest = status.read_text().rpartition(")")
            fields, helper = rest.split(), start.endswith("(hone-helper")
            name = os.readlink(status.with_name("exe")) if fields[0] not in "ZX" else None
        except OSError:                                     # it has ended meanwhile
            continue
        if name and int(fields[3]) == session and (program is None or (name == program and not helper)):
            found.append(int(status.parent.name))
    return found


def wait_until(true):
    end = time.monotonic() + SECONDS_MAX
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def stop_runs(session, hone):
    """Those that are stopped: one that has just ended is none."""
    for pid in alive(session, hone):
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            pass
    return alive(session, hone)


def check(campaign, *args):
    hone, runs = str(pathlib.Path(args[0]).resolve()), []
    with tempfile.TemporaryDirectory() as work:
        process = subprocess.Popen([sys.executable, HERE / f"{campaign}.py", *args], stdout=subprocess.DEVNULL, start_new_session=True,
                                   env=dict(os.environ, TMPDIR=work))
        wait_until(lambda: process.poll() is not None or runs.extend(stop_runs(process.pid, hone)) or runs)
        process.kill()
        process.wait()
        ended = wait_until(lambda: not alive(process.pid))
        for pid in alive(process.pid):
            os.kill(pid, signal.SIGKILL)
    print(f"{campaign}: " + ("it had no run" if not runs else "no run is left" if ended else "its run is left"))
    return runs and ended


def main():
    hone, assets, folder = sys.argv[1:]
    layers = {"storage": "libstorage-shim.so", "allocations": "liballocations-shim.so"}
    good = [check(campaign, hone, *([f"{folder}/{layers[campaign]}"] if campaign in layers else []), assets)
            for campaign in ("soak", "kills", "storage", "allocations")]
    sys.exit(not all(good))


main()
