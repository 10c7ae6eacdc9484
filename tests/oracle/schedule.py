#!/usr/bin/env python3
"""Every schedule of the learning rate, step by step, against transformers' get_scheduler.

    schedule.py TOOL

transformers' first step has a rate of 0; hone's warm-up is one step further, and reaches the max in its last step. After the warm-up
both have the same rate in the same step.
"""
import pathlib
import re
import sys
import warnings

import oracle
from transformers import get_scheduler

import torch

TOOL = sys.argv[1]
RATE = 3e-4
# name, steps, warm-up, lr_scheduler_kwargs
CASES = [(name, steps, warmup, {}) for name in ("constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial")
         for steps, warmup in ((1, 0), (7, 0), (100, 0), (100, 3), (101, 50), (1000, 30))]
CASES += [("constant", 50, 0, {})]
CASES += [("cosine", 60, 6, {"num_cycles": cycles}) for cycles in (0.25, 1, 1.5, 3)]
CASES += [("cosine_with_restarts", steps, 5, {"num_cycles": cycles}) for cycles in (2, 3, 7) for steps in (50, 97)]
CASES += [("polynomial", 80, 8, {"power": power, "lr_end": end}) for power in (0.5, 1, 2, 3.5) for end in (0, 1e-6, 2e-4)]
CASES += [("cosine_with_min_lr", 80, 8, kwargs) for kwargs in ({"min_lr": 1e-5}, {"min_lr_rate": 0.1}, {"min_lr": 0}, {"min_lr_rate": 1},
                                                               {"min_lr_rate": 0.2, "num_cycles": 1.5})]
CASES += [("warmup_stable_decay", 90, 9, {"num_decay_steps": 30, "warmup_type": up, "decay_type": down, "min_lr_ratio": low})
          for up in ("linear", "cosine", "1-sqrt") for down in ("linear", "cosine", "1-sqrt") for low in (0, 0.1)]
CASES += [("warmup_stable_decay", 90, 0, {"num_decay_steps": 90}),
          ("warmup_stable_decay", 90, 10, {"num_decay_steps": 20, "num_stable_steps": 40, "min_lr_ratio": 0.3}),    # 20 steps at the min
          ("warmup_stable_decay", 90, 10, {"num_decay_steps": 50, "num_cycles": 1.5})]


def theirs(name, steps, warmup, kwargs):
    """The rate of every step, and of the one after the last."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = get_scheduler(name, optimizer, warmup, steps, kwargs)
    rates = []
    for _ in range(steps + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def main():
    warnings.simplefilter("ignore")
    checks = oracle.Checks()
    rows = next(pathlib.Path(__file__).resolve().parents[2].glob("src/**/schedules.def")).read_text()
    checks.equal("rows of schedules.def without a case", sorted(set(re.findall(r"(?m)^SCHEDULE\((\w+)", rows)) - {case[0] for case in CASES}), [])
    for name, steps, warmup, kwargs in CASES:
        flags = [word for key, value in kwargs.items() for word in ("--" + key.replace("_", "-"), str(value))]
        ratio = ["--warmup-steps", str(warmup)] if warmup else ["--warmup-ratio", "0"]
        lines = oracle.run(TOOL, str(steps), "--learning-rate", str(RATE), "--lr-scheduler-type", name, *ratio, *flags).split()
        ours, want = list(map(float, lines)), theirs(name, steps, warmup, kwargs)
        want = [want[i + 1] if i < warmup else want[i] for i in range(steps)]
        checks.equal(f"{name} {steps} {warmup} {kwargs}: steps", len(ours), len(want))
        checks.at_most(f"{name} {steps} {warmup} {kwargs}: furthest apart, of the max", max(abs(a - b) for a, b in zip(ours, want)) / RATE, 1e-14)
    checks.end()


main()
