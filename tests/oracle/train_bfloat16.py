"""The gradients of the first step in bfloat16: hone's may be as far from float64 as PyTorch's, and no farther.

Float64's gradients, the chats and the adapter are those of train_truth.py. PyTorch's bfloat16 is the base model in bfloat16 and
the adapter in float32, as PEFT has it. Eager attention and the log-softmax in float64 bring it nearest to float64, so they are
what hone is held against. Its distances are cached under a key of their own, for float64's gradients take minutes to make.
"""
import json
import os

import numpy as np
import oracle
import train_truth


def make(folder, model, inputs):
    import torch
    from peft import PeftModel
    from safetensors.numpy import load_file
    from transformers import AutoModelForCausalLM
    truth = os.path.join(os.path.dirname(folder), inputs["truth"])
    torch.set_num_threads(oracle.THREADS)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, attn_implementation="eager")
    net = PeftModel.from_pretrained(base, os.path.join(truth, "adapter"), is_trainable=True).eval()
    got = train_truth.gradients(net, train_truth.encode(model, inputs["lines"]), exact_loss=True)
    exact = load_file(os.path.join(truth, "gradients.safetensors"))
    with open(os.path.join(folder, "truth.json"), "w", encoding="utf-8") as file:
        json.dump({name: train_truth.distance(got[name], value) for name, value in exact.items()}, file)


def check(checks, label, cache, model, truth, lines, far):
    """`truth`: the folder of train_truth.py; `far`: the distances of hone's tensors from float64."""
    inputs = {"truth": os.path.basename(truth), "lines": lines}
    beside = oracle.cached(cache, "train-lora-bfloat16", model, inputs, make, oracle.read_truth)
    nearer = sum(far[name] < beside[name] for name in far)
    print(f"{label}, {nearer} of {len(beside)} tensors are nearer to float64 than PyTorch's")
    for name, of in (("median", np.median), ("largest", np.max)):
        checks.at_most(f"{label}, {name} distance from float64", of(list(far.values()) or [np.nan]), of(list(beside.values())),
                       ", PyTorch's bfloat16")
