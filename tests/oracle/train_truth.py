"""The truth about training, from PyTorch and PEFT: the gradients of the first step, and the losses of the later steps.

A step takes four chats in the order of the file; those that are too long for the model are left out. Its loss is the sum of
-log p over their trained tokens, divided by the number of those tokens in the step. Each chat goes through the model alone and
unpadded, and the gradients are added up.

Gradients are held against float64, norms and softmax included: transformers computes them in float32 whatever the model's type,
which moves the gradients of SmolLM2 by 1e-6 to 4e-6. PyTorch's float32 gradients stand beside them, once as they are and once
with the log-softmax alone in float64: its bias in float32 at V = 49,152 is ten times all other errors of a gradient.

The cached folder holds truth.json, gradients.safetensors (float64 for LoRA, rounded to float32 for all weights: 3e-8), and for
LoRA the adapter that training starts from and float32.safetensors, PyTorch's own gradients.
"""
import importlib.metadata
import inspect
import json
import os

import float64
import numpy as np
import oracle

CHATS = 4  # of a step
STEPS = {"lora": 8, "full": 3}
LONG = {"lora": 50, "full": 10}  # what docs/promises.md has figures of
RATE = {"lora": 2e-4, "full": 2e-5}
LONGEST = {"smollm2": 1 << 20, "tiny-llama": 400}  # row in characters: tiny-llama has a window of 256 tokens
SEED = 1


def read_train(data, count, longest=1 << 20):
    """The first rows of train.jsonl that have at most so many characters."""
    with open(os.path.join(data, "train.jsonl"), encoding="utf-8") as file:
        lines = [line for line in file if line.strip() and len(line) <= longest][:count]
    assert len(lines) == count
    return lines


def distance(got, want):
    """Of two tensors: |got - want| / |want|, in L2."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


# The step.

def encode(model, lines):
    """For each chat its ids, and the positions of those that are trained."""
    import torch
    tokenizer = oracle.load_tokenizer(model)
    added, chats = set(tokenizer.added_tokens_decoder), []
    for line in lines:
        conversation = oracle.messages(line)
        text = tokenizer.apply_chat_template(conversation, tokenize=False)
        ids = list(tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=True)["input_ids"])
        mask = oracle.expected_mask(tokenizer, added, text, conversation)
        assert len(mask) == len(ids)
        chats.append((torch.tensor([ids]), torch.tensor([i for i in range(1, len(ids)) if mask[i]])))
    return chats


def backward(net, chats, exact_loss=False):
    """Adds the gradients of the step's mean loss, and returns that loss. exact_loss: log p in float64."""
    import torch
    total, loss = sum(len(targets) for _, targets in chats), 0.0
    for ids, targets in chats:
        logits = net(input_ids=ids, use_cache=False).logits[0, targets - 1]
        logits = logits.double() if exact_loss else logits
        lost = torch.nn.functional.cross_entropy(logits, ids[0, targets], reduction="sum") / total
        lost.backward()
        loss += lost.item()
    return loss


def trained(net):
    """The tensors that are trained, by the names that they have in the files."""
    return {name.replace(".default.", "."): tensor for name, tensor in net.named_parameters() if tensor.requires_grad}


def gradients(net, chats, exact_loss=False):
    net.zero_grad(set_to_none=True)
    backward(net, chats, exact_loss)
    return {name: tensor.grad.numpy() for name, tensor in trained(net).items()}


# The models.

def make_adapter(folder, model):
    """An adapter as PEFT makes it, except B: zero there would mean a gradient of zero for A."""
    import torch
    from peft import LoraConfig, get_peft_model
    torch.manual_seed(SEED)
    net = get_peft_model(oracle.load_model(model), LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, bias="none",
                                                              target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, tensor in trained(net).items():
        if "lora_B" in name:
            torch.nn.init.normal_(tensor, std=0.02)
    net.save_pretrained(folder)


def load(model, adapter):
    """In float32; without an adapter all weights are trained, else those of the adapter."""
    base = oracle.load_model(model)
    if not adapter:
        return base
    from peft import PeftModel
    return PeftModel.from_pretrained(base, adapter, is_trainable=True).eval()


def train(net, chats, rate):
    """The loss of every step, and the norm of its gradient before it is clipped."""
    import torch
    parameters, losses, norms = list(trained(net).values()), [], []
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, foreach=False)
    for at in range(0, len(chats), CHATS):
        optimizer.zero_grad(set_to_none=True)
        losses.append(backward(net, chats[at:at + CHATS]))
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        optimizer.step()
    return losses, norms


def make(folder, model, inputs):
    from safetensors.numpy import save_file
    method = inputs["method"]
    chats, adapter = encode(model, inputs["lines"]), None
    if method == "lora":
        adapter = os.path.join(folder, "adapter")
        make_adapter(adapter, model)

    with float64.throughout():
        exact = gradients(load(model, adapter).double(), chats[:CHATS])
    net = load(model, adapter)
    near = gradients(net, chats[:CHATS], exact_loss=True)
    single = gradients(net, chats[:CHATS])
    if method == "lora":
        save_file(single, os.path.join(folder, "float32.safetensors"))
        save_file(exact, os.path.join(folder, "gradients.safetensors"))
    else:
        save_file({name: value.astype(np.float32) for name, value in exact.items()},
                  os.path.join(folder, "gradients.safetensors"))
    figures = {"float32_distances": {name: distance(single[name], value) for name, value in exact.items()},
               "exact_loss_distances": {name: distance(near[name], value) for name, value in exact.items()}}
    del exact, near, single

    figures["losses"], figures["grad_norms"] = train(net, chats, RATE[method])
    with open(os.path.join(folder, "truth.json"), "w", encoding="utf-8") as file:
        json.dump(figures, file)


def truth(cache, model, data, method):
    """The cached folder, what its truth.json holds, and the rows."""
    lines = read_train(data, CHATS * STEPS[method], LONGEST[os.path.basename(model)])
    inputs = {"method": method, "lines": lines, "peft": importlib.metadata.version("peft"), "float64": inspect.getsource(float64)}
    folder, figures = oracle.cached(cache, "train-" + method, model, inputs, make,
                                    lambda folder: (folder, oracle.read_truth(folder)))
    return folder, figures, lines
