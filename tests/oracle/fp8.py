"""FP8 against PyTorch and transformers.

    fp8.py HONE TOOL ASSETS DATA

TOOL is fp8.c. The bytes and scales that hone quantises rows to are those of torch.float8_e4m3fn, and so are their numbers. A small
llama is then written in the forms in which models in FP8 are published: scales by 128 x 128 tiles and by tensor (transformers' own
"fp8"), by row (fbgemm's) and by row in bfloat16 (compressed-tensors'). Each must give the bits of a plain model with its numbers;
for transformers' forms they are those that it dequantises itself. `--load-in-fp8` gives those of the form by rows, and trains the
same adapter.
"""
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import oracle
import torch
from safetensors.torch import load_file, save_file

TILE, MAX, SEED, STEPS, ROWS, LONGEST = 128, torch.tensor(448.0), 5, 5, 40, 350
CHANNELS = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}}}}


def by_rows(w):
    w = w.float()
    scale = w.abs().amax(1, keepdim=True) / MAX
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (w / scale).clamp(-MAX, MAX).to(torch.float8_e4m3fn), scale


def by_rows_bf16(w):
    scale = (w.float().abs().amax(1, keepdim=True) / MAX).bfloat16()
    return (w.float() / scale.float()).clamp(-MAX, MAX).to(torch.float8_e4m3fn), scale


def by_tensor(w):
    scale = w.float().abs().max() / MAX
    return (w.float() / scale).clamp(-MAX, MAX).to(torch.float8_e4m3fn), scale


def by_tiles(w):
    rows, columns = w.shape
    whole = torch.nn.functional.pad(w.float(), (0, -columns % TILE, 0, -rows % TILE))
    scale = whole.reshape(-(rows // -TILE), TILE, -1, TILE).abs().amax((1, 3)) / MAX
    return (w.float() / spread(scale, w.shape)).clamp(-MAX, MAX).to(torch.float8_e4m3fn), scale


def spread(scale, shape):
    """Scales of tiles, for each number."""
    return scale.repeat_interleave(TILE, 0).repeat_interleave(TILE, 1)[:shape[0], :shape[1]]


def numbers(codes, scale):
    """float32 numbers of one form or the other."""
    tiles = scale.ndim == 2 and scale.shape[0] != codes.shape[0]
    return codes.float() * (spread(scale, codes.shape) if tiles else scale.float())


FORMS = {  # how a matrix is quantised, what its scales are called, the configuration, and whether transformers reads it here
    "tiles": (by_tiles, "_scale_inv", {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                       "weight_block_size": [TILE, TILE], "modules_to_not_convert": ["lm_head"]}, True),
    "tensor": (by_tensor, "_scale_inv", {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
                                         "modules_to_not_convert": ["lm_head"]}, True),
    "rows": (by_rows, "_scale", {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
             False),
    "channels": (by_rows_bf16, "_scale", CHANNELS, False),
}


def check_matrix(checks, tool, name, w):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, part) for part in ("w", "codes", "scales", "back")]
        w.reshape(-1).view(torch.uint8).numpy().tofile(paths[0])
        oracle.run(tool, *paths, str(w.shape[0]), str(w.shape[1]), str(w.dtype).removeprefix("torch."))
        codes, scales, back = (np.fromfile(path, kind) for path, kind in zip(paths[1:], (np.uint8, np.float32, np.float32)))
    want, scale = by_rows(w)
    checks.equal(f"{name}: bytes that differ", int((codes != want.view(torch.uint8).numpy().reshape(-1)).sum()), 0)
    checks.equal(f"{name}: scales that differ", int((scales != scale.numpy().reshape(-1)).sum()), 0)
    checks.equal(f"{name}: numbers that differ", int((back != numbers(want, scale).numpy().reshape(-1)).sum()), 0)


def check_matrices(checks, tool):
    torch.manual_seed(SEED)
    every = torch.arange(0, 1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    every = every[(every.abs() <= 448)]
    middles = torch.arange(0, 0x7e, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    middles = torch.cat([middles, (middles[1:] + middles[:-1]) / 2, MAX[None]])
    check_matrix(checks, tool, "bfloat16", (torch.randn(96, 320) * 0.05).bfloat16())
    check_matrix(checks, tool, "float16", (torch.randn(96, 320) * 0.05).half())
    check_matrix(checks, tool, "float32, odd rows", torch.randn(67, 83) * torch.exp(4 * torch.randn(67, 1)))
    check_matrix(checks, tool, "zeros", torch.cat([torch.zeros(3, 64), torch.randn(2, 64)]))
    check_matrix(checks, tool, "tiny", torch.randn(64, 64) * 1e-36)
    check_matrix(checks, tool, "every bfloat16 up to 448", torch.cat([every, MAX[None]])[None])
    check_matrix(checks, tool, "numbers of FP8 and their middles", middles[None])


def write(folder, like, config, tensors):
    os.makedirs(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        if os.path.exists(os.path.join(like, name)):
            shutil.copy(os.path.join(like, name), folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    return folder


def make_model(folder, like):
    """Rows and columns are whole tiles, as transformers wants them."""
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(SEED)
    config = AutoConfig.from_pretrained(like, hidden_size=256, intermediate_size=384, num_attention_heads=4, num_key_value_heads=2,
                                        head_dim=64, initializer_range=0.08, dtype="float32")
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def dequantised(folder):
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def eval_loss(hone, model, rows, *options):
    with tempfile.TemporaryDirectory() as cache:
        return json.loads(oracle.run(hone, "eval", "--model", model, "--data", rows, "--cache-dir", cache, "--json", *options))["loss"]


def train(hone, model, rows, *options):
    """The losses of some steps, and the adapter's numbers as bytes: its file also says which base it is for."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        oracle.run(hone, "train", "--model", model, "--data", rows, "--output", out, "--cache-dir", os.path.join(folder, "cache"),
                   "--per-device-train-batch-size", "4", "--max-steps", str(STEPS), "--learning-rate", "1e-3", "--save-steps", "0", *options)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        adapter = load_file(os.path.join(out, "adapter_model.safetensors"))
        numbers = {name: tensor.numpy().tobytes() for name, tensor in adapter.items()}
        return [line["loss"] for line in lines if "step" in line and "loss" in line], numbers


def check_experts(checks, hone, base, rows, folder):
    """Experts, whose matrices are unpacked as they are loaded; tiles are smaller at the edges."""
    tensors = load_file(os.path.join(base, "model.safetensors"))
    with open(os.path.join(base, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    names = [name for name in tensors if name.endswith("_proj.weight")]
    checks.equal("experts: there are matrices of experts", any(".experts.0." in name for name in names), True)
    for form in ("tiles", "rows"):
        quantise, end, said, _ = FORMS[form]
        stored, dense = dict(tensors), dict(tensors)
        for name in names:
            stored[name], stored[name + end] = quantise(tensors[name])
            dense[name] = numbers(stored[name], stored[name + end])
        path = write(os.path.join(folder, "experts-" + form), base, dict(config, quantization_config=said), stored)
        plain = write(os.path.join(folder, "experts-" + form + "-plain"), base, config, dense)
        for dtype in ("float32", "bfloat16"):
            checks.equal(f"experts, {form}, {dtype}: the loss", *(eval_loss(hone, model, rows, "--dtype", dtype) for model in (path, plain)))


def check_models(checks, hone, like, rows, folder):
    base = os.path.join(folder, "base")
    make_model(base, like)
    tensors = load_file(os.path.join(base, "model.safetensors"))
    with open(os.path.join(base, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    linear = [name for name in tensors if name.endswith("_proj.weight")]
    whole = write(os.path.join(folder, "whole"), like, config, tensors)
    plain = {}
    for form, (quantise, end, said, theirs) in FORMS.items():
        stored, dense = dict(tensors), dict(tensors)
        for name in linear:
            codes, scale = quantise(tensors[name])
            stored[name], stored[name + end] = codes, scale.contiguous()
            dense[name] = numbers(codes, scale)
        stored[linear[0].replace("weight", "input_scale")] = torch.ones(1)  # as models for static activations have them
        path = write(os.path.join(folder, form), like, dict(config, quantization_config=said), stored)
        if theirs:
            read = dequantised(path)
            checks.equal(f"{form}: matrices of which transformers has other numbers",
                         sum(not torch.equal(read[name], dense[name]) for name in linear), 0)
        plain[form] = write(os.path.join(folder, form + "-plain"), like, config, dense)
        for dtype in ("float32", "bfloat16"):
            got, want = (eval_loss(hone, model, rows, "--dtype", dtype) for model in (path, plain[form]))
            checks.equal(f"{form}, {dtype}: the loss", got, want)
        checks.equal(f"{form}: the plan without the files is that with them", *(
            json.loads(oracle.run(hone, "plan", "--model", model, "--json"))["bits_per_weight"] for model in (
                shutil.copytree(path, path + "-config", ignore=shutil.ignore_patterns("*.safetensors")), path)))
    for dtype in ("float32", "bfloat16"):
        checks.equal(f"--load-in-fp8, {dtype}: the loss", eval_loss(hone, whole, rows, "--load-in-fp8", "--dtype", dtype),
                     eval_loss(hone, os.path.join(folder, "rows"), rows, "--dtype", dtype))
    (got, adapter), (want, other) = train(hone, whole, rows, "--load-in-fp8"), train(hone, plain["rows"], rows)
    checks.equal("--load-in-fp8, steps", (len(got), got[-1] < got[0]), (STEPS, True))
    checks.equal(f"--load-in-fp8, losses from {want[0]:.4f} to {want[-1]:.4f} as on its numbers", got, want)
    checks.equal("--load-in-fp8, the adapter is the same", adapter == other, True)
    (got, adapter) = train(hone, os.path.join(folder, "tiles"), rows)
    (want, other) = train(hone, plain["tiles"], rows)
    checks.equal("tiles, the losses and the adapter are those of its numbers", (got, adapter == other), (want, True))


def main():
    hone, tool, assets, data = sys.argv[1:]
    checks = oracle.Checks()
    check_matrices(checks, tool)
    lines = [line for line in oracle.read_lines(data) if len(line) <= LONGEST][:ROWS]
    with tempfile.TemporaryDirectory() as folder, oracle.rows_file(lines) as rows:
        check_models(checks, hone, os.path.join(assets, "models", "tiny-llama"), rows, folder)
        check_experts(checks, hone, os.path.join(assets, "models", "tiny-qwen3_moe"), rows, folder)
    checks.end()


if __name__ == "__main__":
    main()
