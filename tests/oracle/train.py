"""hone train against PyTorch and PEFT.

    train.py HONE TOOL ASSETS DATA CACHE lora|full [long]
    train.py HONE TOOL ASSETS DATA CACHE adapter

lora, full: the gradients of the first step against float64, and the losses of the later steps against PyTorch's in float32;
long: of more steps, which take minutes.
TOOL MODEL ROWS.jsonl OUT.safetensors DTYPE lora|full [ADAPTER] writes the gradients of the rows' mean loss under the names
that the tensors have in files. The distance of a tensor from float64 may be LIMIT_GRADIENT, and twice that of PyTorch's float32.
PyTorch's figure is taken with the log-softmax in float64, for in float32 only its bias is ten times all other errors: twice
that allows anything. In bfloat16 (SmolLM2 with lora only) it may be that of PyTorch's bfloat16: see train_bfloat16.py.
adapter: see train_adapter.py; TOOL is that of logits.py.
"""
import json
import os
import sys
import tempfile

import numpy as np
import oracle
import train_adapter
import train_bfloat16
import train_truth

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import figures

LIMIT_GRADIENT = 2e-5
TIMES_BFLOAT16 = 2  # one tensor's, against PyTorch's draw of roundings, which is another on another processor; for all together:
LIMIT_MEDIAN = 0.62
LIMIT_FARTHER = 0.03
LIMIT_LOSS = 1e-4
LIMIT_NORM = 1e-4
LIMIT_SPLIT = 1e-5  # of a step's loss, if the step is cut into micro-batches in another way


# Gradients.

def exact_norm(folder):
    """Of the true gradient. PyTorch's own norm is off by 5e-5 where a tensor has 28 million elements: its sums are float32."""
    from safetensors import safe_open
    with safe_open(os.path.join(folder, "gradients.safetensors"), "numpy") as want:
        return float(np.sqrt(sum(np.square(want.get_tensor(name).astype(np.float64)).sum() for name in want.keys())))


def print_distances(label, far):
    values = list(far.values())
    print(f"{label}, distance from float64: median {np.median(values):.3g}, largest {np.max(values):.3g}")


def distances(checks, label, path, folder):
    """Of the tensors of a file from float64, by name."""
    from safetensors import safe_open
    with safe_open(path, "numpy") as got, safe_open(os.path.join(folder, "gradients.safetensors"), "numpy") as want:
        names = sorted(set(got.keys()) & set(want.keys()))
        checks.equal(f"{label}, tensors on one side only", sorted(set(got.keys()) ^ set(want.keys()))[:3], [])
        shapes = [name for name in names if got.get_slice(name).get_shape() != want.get_slice(name).get_shape()]
        checks.equal(f"{label}, tensors of another shape", shapes[:3], [])
        return {name: train_truth.distance(got.get_tensor(name), want.get_tensor(name)) for name in names if name not in shapes}


def check_gradients(checks, label, far, whose, theirs, times, limit=np.inf):
    """A tensor may be `times` as far from float64 as in another program, or `times` the median there if that is more: where the
    other is lucky, hone need not be."""
    if not far:
        return
    median = float(np.median(list(theirs.values())))
    allowed = {name: min(limit, times * max(theirs[name], median)) for name in far}
    used = [far[name] / allowed[name] for name in far]
    worst = list(far)[int(np.argmax(used))]  # the first NaN if there is one
    print_distances(f"{label}, hone", far)
    print_distances(f"{label}, {whose}", theirs)
    print(f"{label}, nearer to float64 than {whose}: {sum(far[name] < theirs[name] for name in far)} of {len(far)} tensors")
    checks.at_most(f"{label}, distance from float64 of {worst}", far[worst], allowed[worst], f", {whose} {theirs[worst]:.3g}")


def check_all_gradients(checks, label, far, theirs):
    """Rounding to 16 bits is a draw for each tensor, in both programs; over all of them hone must be nearer to float64."""
    share = sum(far[name] > theirs[name] for name in far) / max(len(far), 1)
    checks.at_most(f"{label}, the median distance as a part of PyTorch's",
                   float(np.median(list(far.values())) / np.median(list(theirs.values()))), LIMIT_MEDIAN)
    checks.at_most(f"{label}, the part of the tensors that are farther than PyTorch's", share, LIMIT_FARTHER)
    near = {f"{name}_{kind}": f"{100 * number(list(of.values())):.2f}%" for name, of in (("hone", far), ("PyTorch", theirs))
            for kind, number in (("median", np.median), ("largest", max))}
    figures.record("Gradients", label, **near, hone_nearer=f"{sum(far[name] < theirs[name] for name in far)} of {len(far)}")
    checks.at_most(f"{label}, the largest distance", max(far.values(), default=0), max(theirs.values(), default=0))


# Steps.

def read_steps(out):
    """The lines of metrics.jsonl that are steps; the first line is a header."""
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file][1:]
    return [line for line in lines if "step" in line and "loss" in line]


def train(hone, model, rows, method, adapter, batch, accumulation):
    start = ["--init-adapter", adapter] if adapter else []
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        oracle.run(hone, "train", "--model", model, "--data", rows, "--output", out,
                   "--cache-dir", os.path.join(folder, "cache"), "--finetuning-type", method, *start, "--dtype", "float32",
                   "--shuffle", "false", "--per-device-train-batch-size", str(batch),
                   "--gradient-accumulation-steps", str(accumulation), "--max-steps", str(train_truth.STEPS[method]),
                   "--learning-rate", str(train_truth.RATE[method]), "--lr-scheduler-type", "constant",
                   "--warmup-ratio", "0", "--save-steps", "0", "--resume", "none")
        return read_steps(out)


def check_losses(checks, name, steps, losses, limit):
    got = [step["loss"] for step in steps]
    off = [abs(a - b) / b for a, b in zip(got, losses)] or [np.nan]
    i = int(np.argmax(off))
    checks.at_most(f"{name}, a loss off by a part of it", off[i], limit, f"; step {i + 1}")


def check_steps(checks, label, hone, model, rows, method, adapter, figures, norm):
    """`norm`: of the first step's true gradient."""
    whole = train(hone, model, rows, method, adapter, train_truth.CHATS, 1)
    split = train(hone, model, rows, method, adapter, train_truth.CHATS // 2, 2)
    for name, steps in ((label, whole), (f"{label} in two batches", split)):
        checks.equal(f"{name}, steps are counted from 1 to the last",
                     [step["step"] for step in steps] == list(range(1, train_truth.STEPS[method] + 1)), True)
        check_losses(checks, f"{name}, against PyTorch", steps, figures["losses"], LIMIT_LOSS)
        checks.at_most(f"{name}, norm of the first gradient off by a part of it",
                       abs(steps[0]["grad_norm"] / norm - 1) if steps else np.nan, LIMIT_NORM,
                       f", PyTorch's float32 {abs(figures['grad_norms'][0] / norm - 1):.3g}")
    check_losses(checks, f"{label}, one batch against two", split, [step["loss"] for step in whole], LIMIT_SPLIT)


def check_method(checks, hone, tool, model, data, cache, method):
    folder, figures, lines = train_truth.truth(cache, model, data, method)
    adapter = os.path.join(folder, "adapter") if method == "lora" else None
    label = f"{os.path.basename(model)} {method}"
    first = lines[:train_truth.CHATS]

    def gradients(dtype):
        with oracle.rows_file(first) as rows, tempfile.TemporaryDirectory() as out:
            path = os.path.join(out, "gradients.safetensors")
            oracle.run(tool, model, rows, path, dtype, method, *([adapter] if adapter else []))
            return distances(checks, f"{label}, {dtype} gradients", path, folder)

    print_distances(f"{label}, float32 gradients, PyTorch", figures["float32_distances"])
    check_gradients(checks, f"{label}, float32 gradients", gradients("float32"), "PyTorch with the log-softmax in float64",
                    figures["exact_loss_distances"], 2, LIMIT_GRADIENT)
    if label == "smollm2 lora":
        far, theirs = gradients("bfloat16"), train_bfloat16.distances(cache, model, folder, first)
        check_gradients(checks, f"{label}, bfloat16 gradients", far, "PyTorch", theirs, TIMES_BFLOAT16)
        check_all_gradients(checks, f"{label}, bfloat16 gradients", far, theirs)
    with oracle.rows_file(lines) as rows:
        check_steps(checks, label, hone, model, rows, method, adapter, figures, exact_norm(folder))


def main():
    if sys.argv[6:] not in (["lora"], ["lora", "long"], ["full"], ["full", "long"], ["adapter"]):
        raise SystemExit(__doc__)
    hone, tool, assets, data, cache, which = sys.argv[1:7]
    if sys.argv[7:]:
        train_truth.STEPS = train_truth.LONG
    checks = oracle.Checks()
    if which == "adapter":
        train_adapter.check(checks, hone, tool, os.path.join(assets, "models", "smollm2"), data)
    else:
        for name in oracle.MODELS:
            check_method(checks, hone, tool, os.path.join(assets, "models", name), data, cache, which)
    checks.end()


main()
