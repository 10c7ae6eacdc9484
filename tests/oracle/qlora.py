"""QLoRA against PEFT and bitsandbytes.

    qlora.py HONE TOOL ASSETS DATA CACHE [long]

short: a small llama made here; long: SmolLM2, short rows. TOOL is that of logits.py.

The checkpoint that bitsandbytes writes is read by hone: its logits are those of PyTorch with the weights that bitsandbytes
dequantises, with and without double quantisation. `hone --load-in-4bit` on the plain model gives the same loss. Then 20 steps of
LoRA from the same adapter, in float32 and in bfloat16: `hone train --finetuning-type qlora` on the plain model, and PEFT on
bitsandbytes' model. PEFT rounds a layer and its adapter twice in bfloat16 (docs/numerics.md), so what bfloat16 costs is measured
from the float32 run: hone may be no further from it than PEFT.
"""
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import oracle
import train_truth

STEPS = 20
RATE = 1e-3
LONGEST = 350   # characters of a row
DTYPES = ("float32", "bfloat16")
LIMIT_LOSS = {"short": {"float32": 1e-4, "bfloat16": 1e-3},     # of each step, as a part of PEFT's in float32: a few codes of
              "long": {"float32": 5e-4, "bfloat16": 5e-3}}      # absmax differ (nf4.py)
LIMIT_LOGITS = 1e-5  # of their range, in float32
TEXT = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def copy_text(source, folder):
    for name in TEXT:
        if os.path.exists(os.path.join(source, name)):
            shutil.copy(os.path.join(source, name), folder)


def make_model(folder, like):
    """Rows are multiples of 64: bitsandbytes multiplies no others on CPUs."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(train_truth.SEED)
    config = AutoConfig.from_pretrained(like, hidden_size=128, intermediate_size=320, num_attention_heads=4,
                                        num_key_value_heads=2, head_dim=32, initializer_range=0.08)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    copy_text(like, folder)


def quantised(model, dtype, double):
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    dtype = getattr(torch, dtype)
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double,
                                bnb_4bit_compute_dtype=dtype)
    return AutoModelForCausalLM.from_pretrained(model, dtype=dtype, device_map="cpu", attn_implementation="eager",
                                                quantization_config=config)


def dense_again(net, model):
    """The plain model with the weights that bitsandbytes dequantises, in float32."""
    import torch
    import bitsandbytes as bnb
    base = oracle.load_model(model)
    for name, module in net.named_modules():
        if isinstance(module, bnb.nn.Linear4bit):
            numbers = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            base.get_submodule(name).weight.data = numbers.to(torch.float32)
    return base


def make_logits(path, net, chats):
    import torch
    with torch.no_grad():
        np.save(path, np.concatenate([net(input_ids=ids).logits[0].float().numpy() for ids, _ in chats]))


def peft_losses(model, adapter, dtype, chats):
    """In mode train(): in eval() bitsandbytes computes the products before the first adapter in bfloat16, with a kernel for
    inference. Logits are float32 before the loss, as in transformers' own; in bfloat16 a step's loss is off by up to 0.6%."""
    from peft import PeftModel
    net = PeftModel.from_pretrained(quantised(model, dtype, True), adapter, is_trainable=True).train()
    net.get_base_model().lm_head.register_forward_hook(lambda module, inputs, logits: logits.float())
    return train_truth.train(net, chats, RATE)[0]


def make(folder, model, inputs):
    import torch
    from peft import LoraConfig, get_peft_model
    torch.set_num_threads(oracle.THREADS)
    if not inputs["long"]:
        plain = os.path.join(folder, "model")
        make_model(plain, model)
        model = plain
    chats = train_truth.encode(model, inputs["lines"])
    for double in (True, False):
        checkpoint = os.path.join(folder, "double" if double else "single")
        net = quantised(model, "float32", double)
        net.save_pretrained(checkpoint)
        copy_text(model, checkpoint)
        make_logits(checkpoint + ".npy", dense_again(net, model), chats[:train_truth.CHATS])
    adapter = os.path.join(folder, "adapter")
    torch.manual_seed(train_truth.SEED)
    get_peft_model(oracle.load_model(model), LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                                                        target_modules="all-linear")).save_pretrained(adapter)
    losses = {dtype: peft_losses(model, adapter, dtype, chats) for dtype in DTYPES}
    with open(os.path.join(folder, "truth.json"), "w", encoding="utf-8") as file:
        json.dump(losses, file)


def hone_losses(hone, model, rows, adapter, dtype):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        oracle.run(hone, "train", "--model", model, "--data", rows, "--output", out, "--cache-dir", os.path.join(folder, "cache"),
                   "--finetuning-type", "qlora", "--init-adapter", adapter, "--dtype", dtype, "--shuffle", "false",
                   "--per-device-train-batch-size", str(train_truth.CHATS), "--max-steps", str(STEPS), "--learning-rate", str(RATE),
                   "--lr-scheduler-type", "constant", "--warmup-ratio", "0", "--save-steps", "0", "--resume", "none")
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [line["loss"] for line in lines if "step" in line and "loss" in line]


def eval_loss(hone, model, rows, *options):
    with tempfile.TemporaryDirectory() as cache:
        return json.loads(oracle.run(hone, "eval", "--model", model, "--data", rows, "--dtype", "float32", "--cache-dir", cache,
                                     "--json", *options))["loss"]


def hone_logits(tool, model, rows, want):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits.bin")
        oracle.run(tool, model, rows, path, "256")
        words, at, parts = np.fromfile(path, np.int32), 0, []
        while at < len(words):  # a row: its length, its ids, its logits
            begin, end = at + 1 + words[at], at + 1 + words[at] * (1 + want.shape[1])
            parts.append(words[begin:end].view(np.float32))
            at = end
        return np.concatenate(parts).reshape(want.shape)


def check_checkpoint(checks, hone, tool, folder, kind, plain, rows):
    want = np.load(os.path.join(folder, kind + ".npy"))
    got = hone_logits(tool, os.path.join(folder, kind), rows, want)
    checks.at_most(f"{kind}, logits of bitsandbytes' checkpoint off by a part of their range",
                   float(np.abs(got - want).max() / np.ptp(want)), LIMIT_LOGITS)
    at_load = eval_loss(hone, plain, rows, "--load-in-4bit", "--double-quantization", str(kind == "double").lower())
    checks.at_most(f"{kind}, loss quantised at loading against the checkpoint's",
                   abs(at_load / eval_loss(hone, os.path.join(folder, kind), rows) - 1), 1e-3 if kind == "double" else 1e-6)


def parts(losses, truth):
    """How far the losses of the steps are from others, as parts of those."""
    return np.abs(np.array(losses) / np.array(truth) - 1)


def check_steps(checks, losses, peft, limits):
    for dtype in DTYPES:
        checks.equal(f"{dtype}, steps", len(losses[dtype]), STEPS)
        off = parts(losses[dtype], peft["float32"])
        print(f"{dtype}, losses of PEFT {peft[dtype][0]:.4f} to {peft[dtype][-1]:.4f}, "
              f"of hone {losses[dtype][0]:.4f} to {losses[dtype][-1]:.4f}")
        checks.at_most(f"{dtype}, a loss of {STEPS} steps off PEFT's in float32 by a part of it", off.max(), limits[dtype],
                       f"; mean {off.mean():.2g}")
    theirs, between = parts(peft["bfloat16"], peft["float32"]), parts(losses["bfloat16"], peft["bfloat16"])
    print(f"bfloat16, hone off PEFT's bfloat16 by {between.max():.3g}, mean {between.mean():.2g}")
    checks.at_most("bfloat16, the mean distance of hone from float32 against that of PEFT", off.mean(), theirs.mean(),
                   f"; at most {theirs.max():.3g}")


def main():
    hone, tool, assets, data, cache = sys.argv[1:6]
    long = sys.argv[6:] == ["long"]
    model, checks = os.path.join(assets, "models", "smollm2" if long else "tiny-llama"), oracle.Checks()
    lines = train_truth.read_train(data, STEPS * train_truth.CHATS, LONGEST)
    inputs = {"lines": lines, "long": long, "peft": importlib.metadata.version("peft"),
              "bitsandbytes": importlib.metadata.version("bitsandbytes")}
    folder, peft = oracle.cached(cache, "qlora", model, inputs, make, lambda folder: (folder, oracle.read_truth(folder)))
    plain = model if long else os.path.join(folder, "model")
    with oracle.rows_file(lines[:train_truth.CHATS]) as rows:
        for kind in ("double", "single"):
            check_checkpoint(checks, hone, tool, folder, kind, plain, rows)
    with oracle.rows_file(lines) as rows:
        losses = {dtype: hone_losses(hone, plain, rows, os.path.join(folder, "adapter"), dtype) for dtype in DTYPES}
    check_steps(checks, losses, peft, LIMIT_LOSS["long" if long else "short"])
    checks.end()


main()
