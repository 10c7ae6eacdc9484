"""adapter_config.json against PEFT, on adapters that PEFT made for the tiny llama.

    adapter.py TOOL ASSETS

Each adapter has random weights and is saved by PEFT; some files are then edited, to say what PEFT reads but does not write. The
truth is PeftModel.from_pretrained of the directory: which modules got a pair, their rank and scale, and which are stored whole
must be what TOOL says about every module. Then TOOL writes the config to another directory, and PEFT must load it without a new
warning and compute the same logits. What hone cannot compute must be refused with the key's name.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import oracle

NORMS = ["input_layernorm", "post_attention_layernorm", "norm"]
FULL = "model.layers.1.self_attn.k_proj"
# name: (arguments of LoraConfig, changes of the file)
ADAPTERS = {
    "all-linear": (dict(target_modules="all-linear"), {}),
    "all-linear as a text": (dict(target_modules="all-linear", rank_pattern={"q_proj": 2}), {"target_modules": "All-Linear"}),
    "a subset": (dict(target_modules=["q_proj", "v_proj"], lora_dropout=0.05), {}),
    "full names and ends": (dict(target_modules=[FULL, "layers.0.mlp.up_proj", "proj", "1.mlp.gate_proj", "lm_head"]), {}),
    "a whole name as a text": (dict(target_modules=[FULL]), {"target_modules": "model.layers.1.self_attn.k.proj"}),
    "ranks by pattern": (dict(target_modules="all-linear", r=16, lora_alpha=8,
                              rank_pattern={"q_proj": 2, FULL: 3, "0.mlp.up_proj": 5, "^model.layers.1.mlp.down_proj": 6, "^v_proj": 7, "layers.1.mlp.gate.proj": 9}), {}),
    "alphas by pattern": (dict(target_modules="all-linear", r=16, lora_alpha=24.5,
                               alpha_pattern={"o_proj": 2.25, FULL: 30, "^q_proj": 3, "^model.layers.0.self_attn.q_proj": 0.001}), {}),
    "patterns in an order": (dict(target_modules="all-linear"), {"alpha_pattern": {"v_proj": 1, "self_attn.v_proj": 2, "0.mlp.up_proj": 3, "mlp.up_proj": 4, "up_proj": 5}}),
    "rsLoRA": (dict(target_modules="all-linear", use_rslora=True, r=6, lora_alpha=7, rank_pattern={"k_proj": 3}, alpha_pattern={"k_proj": 5}), {}),
    "norms": (dict(target_modules="all-linear", modules_to_save=NORMS), {}),
    "norms by one end": (dict(target_modules=["q_proj"], modules_to_save=["norm"]), {}),
    "two of the norms": (dict(target_modules=["q_proj"], modules_to_save=["model.norm", "model.layers.1.input_layernorm"]), {}),
    "the head and a block": (dict(target_modules=["q_proj", "down_proj", "lm_head"], modules_to_save=["lm_head", "0.mlp"]), {}),
}
# changes of the file that must be refused
REFUSED = {
    "peft_type": "IA3", "bias": "all", "task_type": "SEQ_CLS", "use_dora": True, "fan_in_fan_out": True, "lora_bias": True,
    "layers_to_transform": 0, "layer_replication": [[0, 1]], "megatron_config": {"a": 1}, "alora_invocation_tokens": [1],
    "trainable_token_indices": [1], "exclude_modules": "q_proj", "use_qalora": True,
    "use_bdlora": {"nblocks": 2}, "arrow_config": {"top_k": 1}, "kasa_config": {"a": 1}, "monteclora_config": {"num_samples": 2},
    "velora_config": {"num_groups": 2}, "ensure_weight_tying": True, "init_lora_weights": "pissa_niter_4", "target_modules": ".*q_proj",
    "rank_pattern": {"(q|k)_proj": 4}, "alpha_pattern": {".*q_proj": 4}, "modules_to_save": ["(a|b)"],
}


def read_config(folder):
    with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
        text = file.read()
    return json.loads(text), text


def edit(folder, changes):
    config, _ = read_config(folder)
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({**config, **changes}, file)


def load_base(model):
    with contextlib.redirect_stderr(None):
        return oracle.load_model(model)


def make(folder, model, arguments, changes):
    import torch
    from peft import LoraConfig, get_peft_model
    torch.manual_seed(1)
    tuned = get_peft_model(load_base(model), LoraConfig(task_type="CAUSAL_LM", **arguments))
    for name, parameter in tuned.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    tuned.save_pretrained(folder)
    edit(folder, changes)


def load(folder, model):
    """The model with the adapter, its logits, and what PEFT warned of."""
    import torch
    from peft import PeftModel
    base = load_base(model)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        tuned = PeftModel.from_pretrained(base, folder).eval()
        logits = tuned(input_ids=torch.arange(3, 40)[None]).logits
    return tuned, logits, [str(warning.message) for warning in caught]


def attached(tuned):
    """module: (rank, scale), and the modules stored whole."""
    from peft.tuners.lora import LoraLayer
    from peft.utils import ModulesToSaveWrapper
    pairs, saved = {}, set()
    for name, module in tuned.named_modules():
        name = name.removeprefix("base_model.model.")
        if isinstance(module, LoraLayer):
            pairs[name] = (module.r["default"], module.scaling["default"])
        elif isinstance(module, ModulesToSaveWrapper):
            saved.add(name)
    return pairs, saved


def answers(tool, folder, modules):
    done = subprocess.run([tool, "show", folder], input="\n".join(modules) + "\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{folder}: {done.stderr}")
    rows = [line.split() for line in done.stdout.splitlines()]
    pairs = {name: (int(rank), float(scale)) for name, targeted, rank, scale, _ in rows if targeted == "1"}
    return pairs, {row[0] for row in rows if row[4] == "1"}


def compare(checks, tool, model, modules, linear, label, arguments, changes):
    with tempfile.TemporaryDirectory() as folder:
        first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
        make(first, model, arguments, changes)
        tuned, logits, expected = load(first, model)
        pairs, saved = attached(tuned)
        got_pairs, got_saved = answers(tool, first, modules)
        got_pairs = {name: pair for name, pair in got_pairs.items() if name in linear}
        assert pairs, "PEFT attached nothing"
        checks.same_text(f"{label}, {len(pairs)} pairs with their ranks and scales", sorted(got_pairs.items()), sorted(pairs.items()))
        checks.same_text(f"{label}, {len(saved)} modules stored whole", sorted(got_saved), sorted(saved))

        os.mkdir(second)
        oracle.run(tool, "copy", first, second)
        shutil.copy(os.path.join(first, "adapter_model.safetensors"), second)
        (theirs, _), (ours, text) = read_config(first), read_config(second)
        layout = json.dumps({key: ours[key] for key in sorted(ours)}, indent=2) + "\n"
        checks.same_text(f"{label}, the layout of Python's json", text, layout)
        differing = {key: value for key, value in ours.items() if theirs[key] != value and key != "target_modules"}
        checks.equal(f"{label}, written keys that differ", differing, {})
        checks.equal(f"{label}, order of the patterns", [list(ours[key]) for key in ("rank_pattern", "alpha_pattern")],
                     [list(theirs[key]) for key in ("rank_pattern", "alpha_pattern")])
        _, again, warned = load(second, model)
        checks.equal(f"{label}, warnings of PEFT about the written config", warned, expected)
        checks.at_most(f"{label}, logits with the written config off by", (again - logits).abs().max().item(), 0.0)


def refusals(checks, tool, model):
    with tempfile.TemporaryDirectory() as folder:
        make(folder, model, dict(target_modules=["q_proj"]), {})
        good, _ = read_config(folder)
        answers(tool, folder, ["lm_head"])
        for key, value in REFUSED.items():
            edit(folder, {**good, key: value})
            done = subprocess.run([tool, "show", folder], input="", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            checks.equal(f"{key} {value!r} is refused by name", (done.returncode, f'"{key}"' in done.stderr), (7, True))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    tool, model = sys.argv[1], os.path.join(sys.argv[2], "models", "tiny-llama")
    import torch
    base = load_base(model)
    modules = [name for name, _ in base.named_modules() if name]
    linear = {name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)}
    checks = oracle.Checks()
    for label, (arguments, changes) in ADAPTERS.items():
        compare(checks, tool, model, modules, linear, label, arguments, changes)
    refusals(checks, tool, model)
    checks.end()


main()
