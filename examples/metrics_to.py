#!/usr/bin/env python3
"""Sends the metrics of a run of hone to a tracker.

    metrics_to.py mlflow OUT [--experiment NAME]
    metrics_to.py wandb OUT [--project NAME]

OUT is the --output of `hone train`; its metrics.jsonl is read (docs/metrics.md). The tracker's package must be installed, and is set up as
usual: MLFLOW_TRACKING_URI, WANDB_API_KEY, WANDB_MODE=offline, ...
"""
import argparse
import json
import pathlib

NUMBERS = ("epoch", "loss", "grad_norm", "learning_rate", "tokens", "trained_tokens", "tokens_per_second", "step_seconds",
           "engine_share", "eval_loss", "eval_seconds")


def read(out):
    """The first header, then (step, numbers) of each step and validation, a validation's with its step's."""
    header, rows = {}, {}
    for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "steps_per_epoch" in row:
            header = header or row
        elif "step" in row and row.get("event") != "sample":
            rows.setdefault(row["step"], {}).update({key: row[key] for key in NUMBERS if row.get(key) is not None})
    return header, sorted(rows.items())


def to_mlflow(out, experiment):
    import mlflow
    header, rows = read(out)
    mlflow.set_experiment(experiment)
    with mlflow.start_run(run_name=out.resolve().name):
        mlflow.log_params(header)
        for step, numbers in rows:
            mlflow.log_metrics(numbers, step=step)


def to_wandb(out, project):
    import wandb
    header, rows = read(out)
    with wandb.init(project=project, name=out.resolve().name, config=header) as run:
        for step, numbers in rows:
            run.log(numbers, step=step)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tracker", choices=("mlflow", "wandb"))
    parser.add_argument("out", type=pathlib.Path, help="the --output of hone train")
    parser.add_argument("--experiment", "--project", default="hone", help="under which name (hone)")
    arguments = parser.parse_args()
    (to_mlflow if arguments.tracker == "mlflow" else to_wandb)(arguments.out, arguments.experiment)


if __name__ == "__main__":
    main()
