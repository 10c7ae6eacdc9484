#!/usr/bin/env python3
"""Event files as TensorBoard's own reader sees them, against metrics.jsonl.

    events.py HONE ASSETS

A whole run, one that was killed and resumed, and one of which the end of a file is lost.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy
import oracle
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from stop import stop_when  # noqa: E402

HONE, MODEL = sys.argv[1], pathlib.Path(sys.argv[2]) / "models/tiny-llama"
TAGS = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/learning_rate": "learning_rate", "train/epoch": "epoch",
        "train/tokens_per_second": "tokens_per_second", "eval/loss": "eval_loss"}


def chats(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for i in rows:
            answer = " ".join(f"{i * k % 97} packages" for k in range(1, 14))
            file.write(json.dumps({"messages": [{"role": "user", "content": f"What is number {i}?"},
                                                {"role": "assistant", "content": answer}]}) + "\n")
    return path


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def read(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def scalars(events, tag):
    return [(e.step, e.value) for e in events.Scalars(tag)]


def numbers(objects, key):
    """As float32, which TensorBoard's scalars are."""
    return [(o["step"], float(numpy.float32(o[key]))) for o in objects if key in o and "step" in o]


def compare(checks, name, out, before):
    events = read(out / "tensorboard")
    checks.equal(f"{name}: tags", sorted(events.Tags()["scalars"]), sorted(TAGS))
    for tag, key in TAGS.items():
        got, want = scalars(events, tag), numbers(lines(out), key)
        checks.same_text(f"{name}: {tag} of {len(want)} steps", got, want)
    times = [e.wall_time for e in events.Scalars("train/loss")]
    checks.equal(f"{name}: times are those of the run, in order", before <= times[0] and times == sorted(times) and times[-1] <= time.time(), True)
    samples = [o for o in lines(out) if o.get("event") == "sample"]
    texts = [(e.step, e.tensor_proto.string_val[0].decode()) for e in events.Tensors("samples/1")]
    checks.same_text(f"{name}: samples", texts, [(o["step"], f"**{o['prompt']}**\n\n{o['text']}") for o in samples])
    plugin = events.SummaryMetadata("samples/1").plugin_data.plugin_name
    checks.equal(f"{name}: samples are texts", plugin, "text")


def kill(command, out, step):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    path = out / "metrics.jsonl"
    stop_when(process, lambda: path.exists() and f'{{"step": {step},' in path.read_text())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


def main():
    checks = oracle.Checks()
    before = time.time()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        os.environ["XDG_CACHE_HOME"] = oracle.ENVIRONMENT["XDG_CACHE_HOME"] = str(work / "cache")
        data, valid = chats(work / "train.jsonl", range(64)), chats(work / "valid.jsonl", range(80, 84))

        def command(name, *more):
            return [HONE, "train", "--model", str(MODEL), "--data", str(data), "--eval-data", str(valid), "--output", str(work / name), "--max-steps",
                    "20", "--eval-steps", "6", "--save-steps", "5", "--per-device-train-batch-size", "24", "--sample-prompt", "What is number 3?",
                    "--sample-length", "40", "--report-to", "tensorboard", *more]
        oracle.run(*command("whole"))
        compare(checks, "whole", work / "whole", before)
        checks.equal("whole: files", len(list((work / "whole/tensorboard").iterdir())), 1)

        checks.equal("killed: by the signal", kill(command("cut"), work / "cut", 13), -signal.SIGKILL)
        objects = lines(work / "cut")
        want = numbers(objects, "loss")
        got = scalars(read(work / "cut/tensorboard"), "train/loss")
        checks.equal("killed: the file has all steps, or all but the last", got in (want, want[:-1]) and len(want) >= 13, True)
        oracle.run(*command("cut"))
        compare(checks, "resumed", work / "cut", before)
        checks.equal("resumed: files", len(list((work / "cut/tensorboard").iterdir())), 2)
        checks.same_text("resumed: the losses of the whole run", numbers(lines(work / "cut"), "loss"), numbers(lines(work / "whole"), "loss"))

        file, = (work / "whole/tensorboard").iterdir()
        part = work / "part"
        part.mkdir()
        size = file.stat().st_size
        for bytes in (size - 1, size - 5, size // 2, size // 3 + 1, 41):
            shutil.copy(file, part / file.name)
            os.truncate(part / file.name, bytes)
            events = read(part)
            whole = scalars(read(work / "whole/tensorboard"), "train/loss")
            got = scalars(events, "train/loss") if "train/loss" in events.Tags()["scalars"] else []
            checks.equal(f"cut off after {bytes} of {size} bytes: {len(got)} steps are the first ones", got, whole[:len(got)])

        oracle.run(*command("later", "--report-to", "none", "--max-steps", "20"))
        for step in (15, 20):
            shutil.rmtree(work / f"later/checkpoint-{step}", ignore_errors=True)
        oracle.run(*command("later"))  # asked for when it is resumed: the steps before are there too
        got, want = (scalars(read(work / "later/tensorboard"), "train/loss"), numbers(lines(work / "later"), "loss"))
        checks.same_text("later: all steps", got, want)
    checks.end()


main()
