"""GGUF files as models, against transformers in float64.

    gguf_model.py FAMILY_TOOL LOGITS_TOOL HONE ASSETS DATA CACHE

FAMILY_TOOL is family.c and LOGITS_TOOL logits.c. Every family that llama.cpp knows is written as a GGUF file and gives the logits,
greedy tokens and gradients of the directory that it was made from. A model of width 256 with each type of block, K-quants in all
matrices of one file, gives the logits of transformers' own load of the same file, which dequantises it; so does SmolLM2's published
Q4_1. An adapter that hone trains on such a file gives the same logits in PEFT on the dequantised model.
"""
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("TQDM_DISABLE", "1")

import families
import family_truth
import gguf_make
import numpy as np
import oracle

LIMIT = 1e-5
K_QUANTS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
OTHERS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4", "F16", "BF16")
SIZE = "whole"
# What files of a family cannot say, because llama.cpp knows it from the architecture.
FIXED = {"gemma2": lambda config: {"query_pre_attn_scalar": config["head_dim"]},
         "gemma3_text": lambda config: {"query_pre_attn_scalar": config["head_dim"], "layer_types": None, "rope_parameters": {
             **config["rope_parameters"], "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
         "smollm3": lambda config: {"no_rope_layers": None}}


def check_family(checks, tool, model, cache, split):
    folder, truth = family_truth.truth(cache, model)
    of, label = family_truth.SIZES[SIZE], f"{os.path.basename(model)} as GGUF{' in files' if split else ''}"
    ids, middle = os.path.join(folder, SIZE + ".bin"), slice(of["lengths"][0], sum(of["lengths"][:2]))
    with tempfile.TemporaryDirectory() as out:
        path, answers = os.path.join(out, "model.gguf"), os.path.join(out, "answers.bin")
        gguf_make.write(path, os.path.join(folder, "model"), split=split)
        if split:
            path = next(os.path.join(out, name) for name in sorted(os.listdir(out)) if "-00001-of-" in name)
        oracle.run(tool, path, "cpu", str(of["slots"]), ids, answers)
        families.check_answers(checks, label, answers, truth[SIZE], np.load(os.path.join(folder, SIZE + ".npy")), middle)
        answers = os.path.join(out, "gradients.safetensors")
        oracle.run(tool, path, "cpu", str(of["slots"]), ids, answers, os.path.join(folder, "adapter"))
        families.check_gradients(checks, label, answers, os.path.join(folder, SIZE + ".safetensors"))


def check_fixed(checks, tool, model, cache):
    """A family of FIXED, whose tiny model says something else: with what llama.cpp knows, the file answers as the directory."""
    folder, _ = family_truth.truth(cache, model)
    of, label = family_truth.SIZES[SIZE], f"{os.path.basename(model)} as GGUF"
    with tempfile.TemporaryDirectory() as out:
        base, answers = os.path.join(out, "model"), {}
        shutil.copytree(os.path.join(folder, "model"), base)
        with open(os.path.join(base, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        with open(os.path.join(base, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**config, **FIXED[config["model_type"]](config)}, file)
        gguf_make.write(base + ".gguf", base)
        for path in (base, base + ".gguf"):
            oracle.run(tool, path, "cpu", str(of["slots"]), os.path.join(folder, SIZE + ".bin"), os.path.join(out, "answers.bin"))
            answers[path] = np.fromfile(os.path.join(out, "answers.bin"), np.float32)
        want, got = (answers[path] for path in (base, base + ".gguf"))
        end = -family_truth.GREEDY
        tokens, want, got = np.array_equal(want[end:], got[end:]), want[:end], got[:end]
        checks.at_most(f"{label}, logits off by a part of their range", np.abs(want - got).max() / (want.max() - want.min()), LIMIT)
        checks.equal(f"{label}, the directory's greedy tokens", tokens, True)


def load_gguf(path, adapter=None):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    net = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32,
                                               attn_implementation="eager").eval()
    if adapter:
        from peft import PeftModel
        net = PeftModel.from_pretrained(net, adapter).eval()
    return net.double()


def rows_of(path, vocabulary):
    """What LOGITS_TOOL wrote: ids and logits of each row."""
    out, at = np.fromfile(path, np.int32), 0
    while at < len(out):
        n = out[at]
        yield out[at + 1:at + 1 + n], out[at + 1 + n:at + 1 + n + n * vocabulary].view(np.float32).reshape(n, vocabulary)
        at += 1 + n + n * vocabulary


def make_wide(folder, assets):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(7)
    net = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                                       num_key_value_heads=2, vocab_size=512, max_position_embeddings=512,
                                       tie_word_embeddings=False))
    family_truth.shake(net)
    net.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(os.path.join(assets, "models", "tiny-llama", name), folder)


def compare(checks, label, path, net, vocabulary):
    import torch
    far, low, high = 0.0, np.inf, -np.inf
    for ids, logits in rows_of(path, vocabulary):
        with torch.no_grad():
            want = net(input_ids=torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()
        far, low, high = max(far, np.abs(logits - want).max()), min(low, want.min()), max(high, want.max())
    checks.at_most(f"{label}, logits off by a part of their range", far / (high - low), LIMIT)


def check_types(checks, tool, hone, assets, data, kinds, label):
    """The types in turn, one for each matrix; then an adapter that is trained on them."""
    lines = [line for line in oracle.choose_chats(data, 40) if len(line) < 600][:6]
    with tempfile.TemporaryDirectory() as folder, oracle.rows_file(lines) as rows:
        turn, used, path = itertools.cycle(kinds), [], os.path.join(folder, "wide.gguf")
        make_wide(os.path.join(folder, "model"), assets)
        gguf_make.write(path, os.path.join(folder, "model"), types=lambda name: used.append(next(turn)) or used[-1])
        checks.equal(f"{label}, types in the file", sorted(set(used)), sorted(kinds))
        out, adapter = os.path.join(folder, "logits.bin"), os.path.join(folder, "adapter")
        oracle.run(tool, path, rows, out, "512")
        compare(checks, label, out, load_gguf(path), 512)
        oracle.run(hone, "train", "--model", path, "--data", rows, "--output", adapter, "--max-steps", "4", "--learning-rate",
                   "0.02", "--per-device-train-batch-size", "1", "--gradient-accumulation-steps", "1", "--dtype", "float32",
                   "--threads", "1")
        oracle.run(tool, path, rows, out, "512", adapter)
        compare(checks, f"{label}, its adapter in PEFT", out, load_gguf(path, adapter), 512)
        for command in (["inspect", "model"], ["plan"], ["eval", "--data", rows],
                        ["generate", "--prompt", "What?", "--max-new-tokens", "4", "--adapter", adapter]):
            oracle.run(hone, *command, "--model", path)
        refused = subprocess.run([hone, "train", "--model", path, "--data", rows, "--output", adapter + "-full",
                                  "--finetuning-type", "full"], capture_output=True, text=True)
        checks.equal(f"{label}, full fine-tuning refused", "a base for LoRA" in refused.stderr and refused.returncode, 2)


def make_published(folder, model, inputs):
    """As oracle.make_logits: transformers' dequantised load of a GGUF file, and the tokens of the directory of the same model."""
    import torch
    tokenizer, net, all_ids = oracle.load_tokenizer(model), load_gguf(inputs["path"]), []
    with torch.no_grad():
        logits = []
        for line in inputs["lines"]:
            ids = list(tokenizer.apply_chat_template(oracle.messages(line), tokenize=True, return_dict=True)["input_ids"])
            logits.append(net(input_ids=torch.tensor([ids])).logits[0].float().numpy())
            all_ids.append(ids)
    np.save(os.path.join(folder, "logits.npy"), np.concatenate(logits))
    with open(os.path.join(folder, "truth.json"), "w", encoding="utf-8") as file:
        json.dump({"ids": all_ids}, file)


def check_published(checks, tool, assets, data, cache):
    path = os.path.join(assets, "models", "smollm2.q4_1.gguf")
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    lines = sorted(oracle.choose_chats(data), key=len)[:3]
    inputs = {"path": path, "lines": lines, "digest": digest}
    truth, logits = oracle.cached(cache, "gguf", os.path.join(assets, "models", "smollm2"), inputs, make_published,
                                  lambda folder: (oracle.read_truth(folder), np.load(os.path.join(folder, "logits.npy"))))
    with oracle.rows_file(lines) as rows, tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.bin")
        oracle.run(tool, path, rows, out, "512")
        got = list(rows_of(out, logits.shape[1]))
    checks.equal("SmolLM2 in Q4_1, ids of the directory's tokenizer and template", [ids.tolist() for ids, _ in got] == truth["ids"],
                 True)
    far = np.abs(np.concatenate([values for _, values in got]) - logits).max() / (logits.max() - logits.min())
    checks.at_most("SmolLM2 in Q4_1, logits off by a part of their range", far, LIMIT)


def main():
    if len(sys.argv) != 7:
        raise SystemExit(__doc__)
    family_tool, logits_tool, hone, assets, data, cache = sys.argv[1:]
    checks, models = oracle.Checks(), os.path.join(assets, "models")
    table = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "models", "models.def")
    for name, found in families.tiny_models(assets, table).items():
        for model in found if name in gguf_make.ARCHS else []:
            if "text_config" in families.read_config(model):
                continue    # a GGUF file has the text alone, under names of its own
            if name in FIXED:
                check_fixed(checks, family_tool, model, cache)
            else:
                check_family(checks, family_tool, model, cache, split=7 if name == "llama" else 0)
    check_types(checks, logits_tool, hone, assets, data, K_QUANTS, "K-quants in every matrix")
    check_types(checks, logits_tool, hone, assets, data, OTHERS, "the other types")
    check_published(checks, logits_tool, assets, data, cache)
    checks.end()


main()
