"""hone train learns: 100 steps of LoRA as a user would run them, and the loss over chats that were not trained on falls.

    learns.py HONE ASSETS DATA
"""
import json
import os
import sys
import tempfile

import oracle

STEPS, EVERY = 100, 100
LIMIT = 0.6  # of the base model's loss


def read_metrics(path):
    """(step, loss) of the steps, and (step, loss) of the validations; the first line is a header."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file][1:]
    return ([(line["step"], line["loss"]) for line in lines if "loss" in line],
            [(line["step"], line["eval_loss"]) for line in lines if "eval_loss" in line])


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    hone, assets, data = sys.argv[1:]
    checks = oracle.Checks()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        oracle.run(hone, "train", "--model", os.path.join(assets, "models", "smollm2"),
                   "--data", os.path.join(data, "train.jsonl"), "--eval-data", os.path.join(data, "valid.jsonl"),
                   "--output", out, "--cache-dir", os.path.join(folder, "cache"),
                   "--max-steps", str(STEPS), "--eval-steps", str(EVERY), "--per-device-train-batch-size", "4")
        steps, evals = read_metrics(os.path.join(out, "metrics.jsonl"))

    print(f"{'step':>6} {'training':>10} {'validation':>10}")
    for step, loss in evals:
        near = [lost for at, lost in steps if step - EVERY < at <= step]
        print(f"{step:6} {f'{sum(near) / len(near):.4f}' if near else '-':>10} {loss:10.4f}")
    checks.equal("steps", [step for step, _ in steps] == list(range(1, STEPS + 1)), True)
    checks.equal("steps with a validation", [step for step, _ in evals], list(range(0, STEPS + 1, EVERY)))
    checks.at_most("validation loss, last of first", evals[-1][1] / evals[0][1] if evals else float("nan"), LIMIT)
    checks.end()


main()
