"""Exports in the programs that they are for: llama.cpp, PEFT and transformers, against PEFT's own sum in float32.

    export.py HONE ASSETS [--large]

For each family a random adapter (rsLoRA, patterns of ranks and alphas) is made by PEFT. Then
  - hone merge to safetensors, in transformers: the same logits;
  - hone export in PEFT's layout, in PEFT: the same logits;
  - hone merge to GGUF in float32, in llama.cpp: the same logits; Gemma's within a thousandth of their range, because
    llama.cpp's GELU is a table in float16;
  - hone merge to GGUF in float16, and hone export to a GGUF adapter over a float16 base, in llama.cpp: logits within 1e-2 of
    their range, and PEFT's 32 greedy tokens after 8 prompts. A token may differ only at a tie, where its logit in PEFT is less
    than TIE of the range below the best one, and at most one token in a hundred does;
  - hone quantize to q4_0 and q4_k_m: types, blocks and keys are those of llama.cpp's own quantiser.
An adapter of experts is merged as PEFT's own merge_and_unload does, tensor by tensor, into files with the base's names.
--large: SmolLM2 instead of the tiny models, where no token may differ.
"""
import ctypes
import os
import re
import shutil
import sys
import tempfile

import numpy as np

import family_truth
import oracle

FAMILIES = ("llama", "mistral", "ministral3", "qwen2", "qwen3", "gemma2", "gemma3-sixth", "phi3", "smollm3-fourth",
            "olmo2", "granite")
EXPERTS = ("qwen3_moe", "mixtral", "gpt_oss")
PROMPTS, PROMPT, NEW = 8, 12, 32
FLOAT32, TABLE, FLOAT16, TIE = 1e-5, 1e-3, 1e-2, 2e-3   # of the logits' range


def make_adapter(base, path, large):
    """Its change is as large in a tiny model of many layers as in one of two, and with it the noise of float16."""
    import peft
    import torch
    torch.manual_seed(7)
    config = peft.LoraConfig(r=8, lora_alpha=12, use_rslora=True, target_modules="all-linear", task_type="CAUSAL_LM",
                             rank_pattern={"q_proj": 4}, alpha_pattern={"k_proj": 20, "layers.1.mlp.up_proj": 5})
    model = peft.get_peft_model(oracle.load_model(base), config)
    std = 0.02 if large else 0.4 / model.config.num_hidden_layers
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=std)
    model.save_pretrained(path)
    return model.eval()


def logits_of(model, ids):
    import torch
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].double().numpy()


class Llama:
    """A GGUF file in llama.cpp, with float32 keys and values."""

    def __init__(self, path, lora=None):
        import llama_cpp
        self.model = llama_cpp.Llama(path, lora_path=lora, n_ctx=64, n_threads=1, logits_all=True, type_k=0, type_v=0,
                                     flash_attn=False, verbose=False)

    def logits(self, ids):
        self.model.reset()
        self.model.eval(ids)
        return np.array(self.model.scores[:len(ids)], dtype=np.float64)

    def greedy(self, ids, count):
        self.model.reset()
        self.model.eval(ids)
        new = []
        while len(new) < count:
            new.append(int(np.argmax(self.model.scores[len(ids) + len(new) - 1])))
            self.model.eval(new[-1:])
        return new


def answer_length(truth):
    window = truth.config.sliding_window if truth.config.model_type == "mistral" else None     # llama.cpp has none there
    return min(NEW, window - PROMPT if window else NEW)


def check_float32(checks, name, truth, llama, prompt):
    ids = prompt + llama.greedy(prompt, answer_length(truth))
    want, got = logits_of(truth, ids), llama.logits(ids)
    checks.at_most(f"{name}: logits", np.abs(want - got).max() / (want.max() - want.min()),
                   TABLE if truth.config.model_type.startswith("gemma") else FLOAT32)


def check_llama(checks, name, truth, llama, prompts, exact):
    """Logits after every token of the prompts and the answers; what PEFT would have said at each."""
    worst, leads, count = 0.0, [], answer_length(truth)
    for prompt in prompts:
        new = llama.greedy(prompt, count)
        want, got = logits_of(truth, prompt + new), llama.logits(prompt + new)
        extent = want.max() - want.min()
        worst = max(worst, np.abs(want - got).max() / extent)
        rows = want[len(prompt) - 1:-1]
        lead = (rows.max(axis=1) - rows[np.arange(count), new]) / extent    # 0: PEFT's own choice
        leads += lead[lead > 0].tolist()
    checks.at_most(f"{name}: logits", worst, FLOAT16)
    checks.at_most(f"{name}: {len(leads)} of {PROMPTS * count} tokens differ, the best logit leads by", max(leads, default=0), TIE)
    checks.at_most(f"{name}: tokens that differ", len(leads), 0 if exact else PROMPTS * count // 100)


def check_quantised(checks, hone, base, folder, full, type, number):
    """Against llama.cpp's quantiser over the float32 file."""
    import gguf
    import llama_cpp
    path, own = os.path.join(folder, type + ".gguf"), os.path.join(folder, type + ".llama.gguf")
    oracle.run(hone, "quantize", "--model", base, "--output", path, "--type", type, "--threads", "1")
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype, settings.nthread = number, 1
    assert llama_cpp.llama_model_quantize(full.encode(), own.encode(), ctypes.byref(settings)) == 0
    got, want = gguf.GGUFReader(path), gguf.GGUFReader(own)
    tensors = {t.name: t for t in got.tensors}
    other = [t.name for t in want.tensors if t.tensor_type != tensors[t.name].tensor_type
             or not np.array_equal(t.data, tensors[t.name].data)]
    keys = [{k: str(f.contents()) for k, f in file.fields.items()} for file in (got, want)]
    checks.equal(f"{type}: tensors that differ from llama.cpp's, of {len(tensors)}", other, [])
    checks.equal(f"{type}: keys that differ", [k for k in keys[0].keys() | keys[1].keys() if keys[0].get(k) != keys[1].get(k)], [])


def check_model(checks, hone, base, folder, name, large):
    import peft
    from transformers import AutoModelForCausalLM
    adapter = os.path.join(folder, "adapter")
    truth = make_adapter(base, adapter, large)
    random = np.random.default_rng(3)
    prompts = [random.integers(3, truth.config.vocab_size, PROMPT).tolist() for _ in range(PROMPTS)]

    def run(command, output, type, *more):
        path = os.path.join(folder, output)
        oracle.run(hone, command, "--model", base, "--output", path, "--type", type, "--threads", "1", *more)
        return path
    change = ("--adapter", adapter)

    merged = AutoModelForCausalLM.from_pretrained(run("merge", "merged", "f32", *change), attn_implementation="eager").eval()
    copied = peft.PeftModel.from_pretrained(oracle.load_model(base), run("export", "copied", "f32", *change)).eval()
    want = logits_of(truth, prompts[0])
    for what, model in (("merged safetensors in transformers", merged), ("adapter in PEFT", copied)):
        off = np.abs(logits_of(model, prompts[0]) - want).max() / (want.max() - want.min())
        checks.at_most(f"{name}: {what}: logits", off, 1e-5)

    check_float32(checks, f"{name}: merged GGUF in float32 in llama.cpp", truth, Llama(run("merge", "whole.gguf", "f32", *change)),
                  prompts[0])
    plain = run("quantize", "base.gguf", "f16")
    check_llama(checks, f"{name}: merged GGUF in llama.cpp", truth, Llama(run("merge", "merged.gguf", "f16", *change)), prompts,
                large)
    check_llama(checks, f"{name}: GGUF adapter in llama.cpp", truth,
                Llama(plain, run("export", "adapter.gguf", "f32", *change)), prompts, large)
    full = run("quantize", "full.gguf", "f32")
    for type, number in (("q4_0", 2), ("q4_k_m", 15)):
        check_quantised(checks, hone, base, folder, full, type, number)


def tensors_of(folder):
    from safetensors import safe_open
    with safe_open(os.path.join(folder, "model.safetensors"), "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def stacked(tensors):
    """With the matrices of a layer's experts in one tensor each, as some files have them."""
    pieces = {name: re.fullmatch(r"(.*\.experts\.)(\d+)\.(gate|up|down)_proj\.weight", name) for name in tensors}
    out = {name: tensor for name, tensor in tensors.items() if not pieces[name]}
    layers = {piece[1]: 1 + max(int(other[2]) for other in pieces.values() if other and other[1] == piece[1])
              for piece in pieces.values() if piece}
    for layer, count in layers.items():
        gate, up, down = (np.stack([tensors[f"{layer}{e}.{kind}_proj.weight"] for e in range(count)])
                          for kind in ("gate", "up", "down"))
        out.update({layer + "gate_up_proj": np.concatenate([gate, up], axis=1), layer + "down_proj": down})
    return out


def check_stacked(checks, hone, base, adapter, folder, merged):
    """A base whose files have stacked experts is merged to the same numbers, stacked."""
    from safetensors.numpy import save_file
    whole, sums = os.path.join(folder, "whole"), os.path.join(folder, "sums")
    shutil.copytree(base, whole)
    save_file(stacked(tensors_of(base)), os.path.join(whole, "model.safetensors"), {"format": "pt"})
    oracle.run(hone, "merge", "--model", whole, "--adapter", adapter, "--output", sums, "--type", "f32", "--threads", "1")
    got, want = tensors_of(sums), stacked(merged)
    checks.equal("stacked experts: tensors that differ", [name for name in got.keys() | want.keys() if name not in got or
                                                          not np.array_equal(got[name], want.get(name))], [])


def check_experts(checks, hone, base, folder, name):
    """One of both matrices with a rank and an alpha of its own; and of only one matrix, which has other names in PEFT."""
    import peft
    import torch
    for parameters in (["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], ["mlp.experts.gate_up_proj"]):
        torch.manual_seed(7)
        config = peft.LoraConfig(r=4, lora_alpha=12, use_rslora=True, target_modules=["q_proj"], target_parameters=parameters,
                                 task_type="CAUSAL_LM", rank_pattern={"experts.gate_up_proj": 3},
                                 alpha_pattern={"experts.gate_up_proj": 5})
        model = peft.get_peft_model(family_truth.load(base), config)
        for of, parameter in model.named_parameters():
            if "lora_B" in of:
                torch.nn.init.normal_(parameter, std=0.2)
        adapter, merged, copied, truth = (os.path.join(folder, f"{part}{len(parameters)}") for part in
                                          ("adapter", "merged", "copied", "truth"))
        model.save_pretrained(adapter)
        model.merge_and_unload().save_pretrained(truth)
        for command, to in (("merge", merged), ("export", copied)):
            oracle.run(hone, command, "--model", base, "--adapter", adapter, "--output", to, "--type", "f32", "--threads", "1")
        got, want, old = (tensors_of(path) for path in (merged, truth, base))
        label = f"{name}: {' and '.join(parameters)}"
        if name == "tiny-qwen3_moe" and len(parameters) > 1:
            check_stacked(checks, hone, base, adapter, folder, got)
        checks.equal(f"{label}: names that PEFT's merge has not", sorted(got.keys() ^ want.keys())[:3], [])
        far = {of: np.linalg.norm(got[of] - want[of]) / max(np.linalg.norm(want[of] - old[of]), 1e-9) for of in want}
        worst = max(far, key=far.get)
        checks.at_most(f"{label}: merged tensors off by a part of their change", far[worst], 1e-5, f"; {worst}")
        ids = np.random.default_rng(3).integers(3, 512, PROMPT).tolist()
        want = logits_of(family_truth.load(truth).eval(), ids)
        got = logits_of(peft.PeftModel.from_pretrained(family_truth.load(base), copied).eval(), ids)
        checks.at_most(f"{label}: adapter in PEFT: logits", np.abs(got - want).max() / (want.max() - want.min()), 1e-5)


def main():
    hone, assets, *rest = sys.argv[1:]
    checks, large = oracle.Checks(), rest == ["--large"]
    for name in ["smollm2"] if large else ["tiny-" + family for family in FAMILIES]:
        with tempfile.TemporaryDirectory() as folder:
            base = os.path.join(folder, "model")    # a file takes its name; of a phi3's llama.cpp expects Phi 3's own tokens
            os.symlink(os.path.join(assets, "models", name), base)
            check_model(checks, hone, base, folder, name, large)
    for name in [] if large else ["tiny-" + family for family in EXPERTS]:
        with tempfile.TemporaryDirectory() as folder:
            check_experts(checks, hone, os.path.join(assets, "models", name), folder, name)
    checks.end()


main()
