"""How far PyTorch's gradients of the first step in bfloat16 are from float64's.

Float64's gradients, the chats and the adapter are those of train_truth.py. PyTorch's bfloat16 is the base model in bfloat16 and
the adapter in float32, as PEFT has it. Eager attention and the log-softmax in float64 bring it nearest to float64, so they are
what hone is held against. The distances are cached under a key of their own, for float64's gradients take minutes to make.
"""
import json
import os

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


def distances(cache, model, truth, lines):
    """Of PyTorch's tensors from float64, by name. `truth`: the folder of train_truth.py."""
    inputs = {"truth": os.path.basename(truth), "lines": lines}
    return oracle.cached(cache, "train-lora-bfloat16", model, inputs, make, oracle.read_truth)
