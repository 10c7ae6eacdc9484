"""Every family against transformers and PEFT in float64, on a device.

    families.py TOOL ASSETS CACHE MODELS.def DEVICE [whole|short] [FAMILY...]

A family of models.def is tested on every tiny model of its model_type among the assets; one without any is a failure. TOOL is
family.c. Checked are the logits of packed sequences at every position, the gradients of an adapter on all linear layers, greedy
tokens over a cache, and that nothing leaks from one packed sequence into the next: the logits of a sequence between two others
stay the same to the bit if the others change, and are those that it has without others, in other slots, up to rounding. Each truth
was computed with one sequence, so a leak into gradients is found as well. With FAMILY only those are tested.
"""
import json
import os
import re
import sys
import tempfile

import family_truth
import numpy as np
import oracle

LIMIT_LOGITS = 1e-5     # of their range
LIMIT_GRADIENT = 5e-5   # of a tensor's norm
LIMIT_PLACE = 1e-6      # of the range: in other slots sums over keys have other blocks
UNSCALED = {"gemma4_text": 5e-6}    # the same where scores are not divided by the root of the head size


def read_config(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def model_type(folder):
    config = read_config(folder)
    return config.get("text_config", config)["model_type"]


def tiny_models(assets, table):
    """By family, in the order of models.def."""
    with open(table, encoding="utf-8") as file:
        found = {name: [] for name in re.findall(r"^FAMILY\((\w+)\)", file.read(), re.M)}
    models = os.path.join(assets, "models")
    for name in sorted(os.listdir(models)):
        if name.startswith("tiny-") and not name.endswith(".part"):
            found.get(model_type(os.path.join(models, name)), []).append(os.path.join(models, name))
    return found


def check_answers(checks, label, path, truth, want, middle, place=LIMIT_PLACE):
    out = np.fromfile(path, np.float32)
    rows, V = want.shape
    packed, others = out[:2 * rows * V].reshape(2, rows, V)
    alone = out[2 * rows * V:-family_truth.GREEDY].reshape(-1, V)
    scale = want.max() - want.min()
    far = np.abs(packed - want).max(axis=1) / scale
    worst = int(np.argmax(far))  # a NaN if there is one
    checks.at_most(f"{label}, logits off by a part of their range", far[worst], LIMIT_LOGITS, f"; position {worst}")
    for company, logits, limit in (("with others", others[middle], 0), ("alone", alone, place)):
        apart = float(np.abs(logits - packed[middle]).max() / scale)
        checks.at_most(f"{label}, logits of a packed sequence and {company} apart by", apart, limit)
    got = " ".join(map(str, out[-family_truth.GREEDY:].view(np.int32)))
    checks.same_text(f"{label}, {family_truth.GREEDY} greedy tokens, smallest lead {truth['lead']:.2g} of the range", got,
                     " ".join(map(str, truth["greedy"])))


def check_gradients(checks, label, path, truth):
    from safetensors import safe_open
    with safe_open(path, "numpy") as got, safe_open(truth, "numpy") as want:
        checks.equal(f"{label}, tensors of the adapter on one side only", sorted(set(got.keys()) ^ set(want.keys()))[:3], [])
        far = {name: np.linalg.norm(got.get_tensor(name) - want.get_tensor(name)) / np.linalg.norm(want.get_tensor(name))
               for name in want.keys() if name in got.keys()}
    worst = max(far, key=lambda name: np.inf if np.isnan(far[name]) else far[name])
    checks.at_most(f"{label}, gradient off by a part of its norm", far[worst], LIMIT_GRADIENT, f"; {worst}")


def check(checks, tool, model, cache, device, size):
    folder, truth = family_truth.truth(cache, model)
    of, label = family_truth.SIZES[size], f"{os.path.basename(model)} on {device}"
    base, ids = os.path.join(folder, "model"), os.path.join(folder, size + ".bin")
    middle = slice(of["lengths"][0], sum(of["lengths"][:2]))
    with tempfile.TemporaryDirectory() as out:
        path = os.path.join(out, "answers.bin")
        oracle.run(tool, base, device, str(of["slots"]), ids, path)
        check_answers(checks, label, path, truth[size], np.load(os.path.join(folder, size + ".npy")), middle,
                      UNSCALED.get(model_type(model), LIMIT_PLACE))
        path = os.path.join(out, "gradients.safetensors")
        oracle.run(tool, base, device, str(of["slots"]), ids, path, os.path.join(folder, "adapter"))
        check_gradients(checks, label, path, os.path.join(folder, size + ".safetensors"))


def main():
    if len(sys.argv) < 6:
        raise SystemExit(__doc__)
    tool, assets, cache, table, device = sys.argv[1:6]
    size = sys.argv[6] if len(sys.argv) > 6 else "whole"
    checks, found = oracle.Checks(), tiny_models(assets, table)
    for name in sys.argv[7:] or found:
        checks.at_most(f"{name}: 1 tiny model among the assets, or more", 1, len(found[name]))
        for model in found[name]:
            check(checks, tool, model, cache, device, size)
    checks.end()


if __name__ == "__main__":
    main()
