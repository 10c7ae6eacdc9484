"""The truth about a family, from transformers and PEFT in float64 (float64.py): logits, greedy tokens, gradients of an adapter.

A tiny model has norms of 1, biases of 0 and attention that is nearly uniform, which would hide mistakes. So its weights are first
shaken: no norm is 1, no bias is 0, and matrices are as large as keeps the scale of their input. hone reads the same files.

The cached folder holds model/, adapter/ (of all linear layers, B included), and for each of SIZES ids.bin (what family.c reads),
logits.npy, gradients.safetensors, and its greedy tokens in truth.json.
"""
import importlib.metadata
import inspect
import json
import os
import shutil

import float64
import numpy as np
import oracle

GREEDY = 20
PROMPTS = 64  # to choose from
LEAD = 5e-4   # of the logits' range, of a token over the next best: what float32 cannot turn around
SIZES = {"whole": {"lengths": (7, 45, 30), "prompt": 26, "slots": 96},  # longer than the windows of local attention, and padding
         "short": {"lengths": (6, 15, 9), "prompt": 6, "slots": 32}}    # for a simulator
SEED = 3


def shake(net):
    import torch
    torch.manual_seed(SEED)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim > 1 and parameter.std() > 0:
                parameter *= parameter.shape[-1] ** -0.5 / parameter.std()
            else:
                parameter += 0.2 * torch.randn_like(parameter)


def load(folder):
    """In float32; a model with a vision part whole. Experts by the model's own loops: their grouped matmul has no float64."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText
    if hasattr(AutoConfig.from_pretrained(folder), "text_config"):
        net = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    else:
        net = oracle.load_model(folder)
    if experts(net):
        net.set_experts_implementation("eager")
    return net


def experts(net):
    """The matrices of experts, as PEFT names them."""
    return sorted({name[name.index("mlp.experts."):] for name, tensor in net.named_parameters()
                   if "mlp.experts." in name and tensor.ndim > 2})


def targets(net):
    """All linear layers; beside experts all but the router, beside a vision part those of the text part, by their whole names: the
    ends of names may be the same in both."""
    import torch
    linear = [name for name, module in net.named_modules() if isinstance(module, torch.nn.Linear)]
    text = [name for name in linear if ".language_model." in name]
    if experts(net) and not text:
        return sorted({name.rpartition(".")[2] for name in linear} - {"lm_head"})
    return text or "all-linear"


def make_adapter(folder, net):
    """Of every linear layer but the head, and of experts but not their router, with a B that is not 0: A would have no gradient."""
    import torch
    from peft import LoraConfig, get_peft_model
    net = get_peft_model(net, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                                         target_modules=targets(net), target_parameters=experts(net) or None))
    for name, tensor in net.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(tensor, std=0.1)
    net.save_pretrained(folder)


def logits_of(net, ids):
    import torch
    with torch.no_grad():
        return net(input_ids=torch.tensor(ids), use_cache=False).logits


def greedy(net, vocabulary, length):
    """A prompt, its GREEDY tokens, and their smallest lead. Of the prompts whose tokens are sure, that with the most kinds of them."""
    rows = np.random.default_rng(SEED).integers(3, vocabulary, (PROMPTS, length)).tolist()
    leads = [[] for _ in rows]
    for _ in range(GREEDY):
        last = logits_of(net, rows)[:, -1]
        best, top = last.topk(2, dim=-1)
        for i, row in enumerate(rows):
            leads[i].append(((best[i, 0] - best[i, 1]) / (last[i].max() - last[i].min())).item())
            row.append(top[i, 0].item())
    chosen = max((i for i in range(PROMPTS) if min(leads[i]) >= LEAD), key=lambda i: len(set(rows[i][length:])))
    return rows[chosen][:length], rows[chosen][length:], min(leads[chosen])


def gradients(net, sequences):
    import torch
    total = sum(len(ids) - 1 for ids in sequences)
    for ids in sequences:
        logits = net(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
        (torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum") / total).backward()
    return {name.replace(".default.", "."): tensor.grad.numpy() for name, tensor in net.named_parameters() if tensor.requires_grad}


def make(folder, model, inputs):
    import torch
    from peft import PeftModel
    from safetensors.numpy import save_file
    torch.set_num_threads(1)
    adapter, truth = os.path.join(folder, "adapter"), {}
    net = load(model)
    shake(net)
    net.save_pretrained(os.path.join(folder, "model"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(model, name), os.path.join(folder, "model", name))
    make_adapter(adapter, net)
    base = load(os.path.join(folder, "model")).double()
    tuned = PeftModel.from_pretrained(load(os.path.join(folder, "model")), adapter, is_trainable=True).eval().double()
    vocabulary = base.config.get_text_config().vocab_size
    for size, of in SIZES.items():
        draw = np.random.default_rng(SEED + len(size))
        sequences = [draw.integers(3, vocabulary, n).tolist() for n in of["lengths"]]
        with float64.throughout():
            logits = np.concatenate([logits_of(base, [ids])[0].numpy() for ids in sequences])
            prompt, tokens, lead = greedy(base, vocabulary, of["prompt"])
            tuned.zero_grad(set_to_none=True)
            save_file(gradients(tuned, sequences), os.path.join(folder, size + ".safetensors"))
        np.save(os.path.join(folder, size + ".npy"), logits)
        rows = [*sequences, prompt]
        np.array([len(rows), *map(len, rows), *(id for row in rows for id in row)], np.int32).tofile(
            os.path.join(folder, size + ".bin"))
        truth[size] = {"greedy": tokens, "lead": lead}
    with open(os.path.join(folder, "truth.json"), "w", encoding="utf-8") as file:
        json.dump(truth, file)


def truth(cache, model):
    """The cached folder, and what its truth.json holds."""
    inputs = {"peft": importlib.metadata.version("peft"), "float64": inspect.getsource(float64)}
    apart = os.path.join(cache, "families", os.path.basename(model))  # the name of one may begin with another's
    return oracle.cached(apart, "family", model, inputs, make, lambda folder: (folder, oracle.read_truth(folder)))
