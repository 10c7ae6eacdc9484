"""hone train learns: steps of LoRA as a user would run them, and the loss over chats that were not trained on falls.

    learns.py HONE ASSETS DATA [long]       30 steps and 12 chats; with long, 100 and all
"""
import json
import os
import sys
import tempfile

import oracle

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import figures

LONG = sys.argv[4:] == ["long"]
STEPS, CHATS, LIMIT = (100, 1 << 20, 0.6) if LONG else (30, 12, 0.85)  # LIMIT: of the base model's loss


def read_metrics(path):
    """(step, loss) of the steps, and (step, loss) of the validations; the first line is a header."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file][1:]
    return ([(line["step"], line["loss"]) for line in lines if "loss" in line],
            [(line["step"], line["eval_loss"]) for line in lines if "eval_loss" in line])


def main():
    if len(sys.argv) != 4 + LONG:
        raise SystemExit(__doc__)
    hone, assets, data = sys.argv[1:4]
    checks = oracle.Checks()
    with tempfile.TemporaryDirectory() as folder, oracle.rows_file(oracle.read_lines(data)[:CHATS]) as valid:
        out = os.path.join(folder, "out")
        oracle.run(hone, "train", "--model", os.path.join(assets, "models", "smollm2"),
                   "--data", os.path.join(data, "train.jsonl"), "--eval-data", valid,
                   "--output", out, "--cache-dir", os.path.join(folder, "cache"),
                   "--max-steps", str(STEPS), "--eval-steps", str(STEPS), "--per-device-train-batch-size", "4")
        steps, evals = read_metrics(os.path.join(out, "metrics.jsonl"))

    print(f"{'step':>6} {'training':>10} {'validation':>10}")
    for step, loss in evals:
        near = [lost for at, lost in steps if step - STEPS < at <= step]
        print(f"{step:6} {f'{sum(near) / len(near):.4f}' if near else '-':>10} {loss:10.4f}")
    checks.equal("steps", [step for step, _ in steps] == list(range(1, STEPS + 1)), True)
    checks.equal("steps with a validation", [step for step, _ in evals], list((0, STEPS)))
    checks.at_most("validation loss, last of first", evals[-1][1] / evals[0][1] if evals else float("nan"), LIMIT)
    if evals:
        figures.record("Learning", f"validation loss, {STEPS} steps", at_first=f"{evals[0][1]:.4f}", at_last=f"{evals[-1][1]:.4f}",
                       last_of_first=f"{evals[-1][1] / evals[0][1]:.0%}")
    checks.end()


main()
