"""Experts in MXFP4, as gpt-oss is published, against transformers.

    mxfp4.py HONE TOOL ASSETS

The tiny gpt_oss gets random codes and scales in the layout of the published files; transformers reads it, and its dequantised
weights are written as a plain model. Of both hone must give the same bytes: logits (TOOL is family.c), and what `hone merge` makes
of an adapter of attention. Scales are of all sizes that leave logits finite.
"""
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import oracle

LENGTHS, SLOTS, SEED = (12, 9, 6), 32, 5
SCALES = (0, 125)  # exponents plus 127, the end is left out


def write(folder, like, tensors, **config):
    """A model directory like another one, with other tensors."""
    from safetensors.torch import save_file
    os.makedirs(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(like, name), folder)
    with open(os.path.join(like, "config.json"), encoding="utf-8") as file:
        old = json.load(file)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(old, dtype="bfloat16", **config), file)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def packed(model):
    """The model's tensors in bfloat16, those of experts as random blocks and scales."""
    import torch
    from safetensors.torch import load_file
    draw, out = np.random.default_rng(SEED), {}
    for name, tensor in load_file(os.path.join(model, "model.safetensors")).items():
        if tensor.ndim < 3:
            out[name] = tensor.to(torch.bfloat16)
            continue
        E, inputs, outputs = tensor.shape
        out[name + "_blocks"] = torch.from_numpy(draw.integers(0, 256, (E, outputs, inputs // 32, 16), np.uint8))
        out[name + "_scales"] = torch.from_numpy(draw.integers(*SCALES, (E, outputs, inputs // 32), np.uint8))
    return out


def dequantised(folder):
    import torch
    from transformers import AutoModelForCausalLM, Mxfp4Config
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=Mxfp4Config(dequantize=True))


def make(folder, model):
    """Two directories of one model, and transformers' model."""
    write(os.path.join(folder, "packed"), model, packed(model), quantization_config={"quant_method": "mxfp4"})
    net = dequantised(os.path.join(folder, "packed"))
    write(os.path.join(folder, "plain"), model, {name: tensor.contiguous() for name, tensor in net.state_dict().items()})
    return net


def both(folder, tail, run):
    """The bytes of a file that a command makes from each of the two."""
    out = []
    for name in ("packed", "plain"):
        path = os.path.join(folder, name + (".merged" if tail else ".answers"))
        run(os.path.join(folder, name), path)
        with open(os.path.join(path, tail) if tail else path, "rb") as file:
            out.append(file.read())
    return out


def check_logits(checks, tool, folder):
    draw = np.random.default_rng(SEED)
    rows = [draw.integers(3, 512, n).tolist() for n in LENGTHS]
    ids = os.path.join(folder, "ids.bin")
    np.array([len(rows), *map(len, rows), *(id for row in rows for id in row)], np.int32).tofile(ids)
    got, want = both(folder, "", lambda base, out: oracle.run(tool, base, "cpu", str(SLOTS), ids, out))
    checks.equal("bytes of answers that differ between MXFP4 and transformers' numbers",
                 int((np.frombuffer(got, np.uint8) != np.frombuffer(want, np.uint8)).sum()), 0)


def check_merged(checks, hone, net, folder):
    from peft import LoraConfig, get_peft_model
    adapter = os.path.join(folder, "adapter")
    get_peft_model(net, LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(adapter)
    got, want = both(folder, "model.safetensors",
                     lambda base, out: oracle.run(hone, "merge", "--model", base, "--adapter", adapter, "--output", out))
    checks.equal("the merged model is the same", got == want, True)


def main():
    hone, tool, assets = sys.argv[1:]
    checks = oracle.Checks()
    with tempfile.TemporaryDirectory() as folder:
        net = make(folder, os.path.join(assets, "models", "tiny-gpt_oss"))
        check_logits(checks, tool, folder)
        check_merged(checks, hone, net, folder)
    checks.end()


if __name__ == "__main__":
    main()
