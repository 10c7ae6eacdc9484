"""Configurations of TRL against TRL itself: what its own parser makes of a file, and what `hone config convert` does.

    configs.py HONE CONFIGS

CONFIGS has YAML files for `trl sft --config`. For each of them, and for one that says nothing but the model and the data, the
values that both have must be equal: TRL's defaults are hone's there. Every key of TRL's arguments must be in hone's table.
"""
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import oracle

# hone's option: the value in TRL's arguments
SAME = {name: name for name in """learning_rate num_train_epochs per_device_train_batch_size gradient_accumulation_steps weight_decay
    adam_beta1 adam_beta2 adam_epsilon max_grad_norm seed packing lora_r lora_alpha lora_dropout use_rslora load_in_4bit
    warmup_steps""".split()} | {"bnb_4bit_use_double_quant": "use_bnb_nested_quant"}
LORA = {"lora_r", "lora_alpha", "lora_dropout", "use_rslora"}


def parse(path):
    """TRL's arguments as one dictionary."""
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, SFTConfig, TrlParser
    classes = (ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig)
    parts = TrlParser(classes).parse_args_and_config(["--config", str(path), "--output_dir", "out", "--use_cpu", "true"], fail_with_unknown_args=False)[:4]
    return {field.name: getattr(part, field.name) for part in parts for field in dataclasses.fields(part)}


def convert(hone, path, folder):
    out = subprocess.run([hone, "config", "convert", path, "--config-format", "trl"], cwd=folder, env=oracle.ENVIRONMENT,
                         capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    given = dict(re.fullmatch(r"(\w+): (.*?) +# .*", line).groups() for line in out.stdout.splitlines() if line[0] != "#")
    page = (pathlib.Path(__file__).parents[2] / "docs/options.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| `") and row.count(" | ") == 6]
    return {row[0].strip("| `"): row[3] for row in rows} | given


def number(value):
    words = {"true": 1.0, "false": 0.0}
    return float(words.get(str(value).lower(), value))


def compare(hone, path, folder):
    trl, ours, wrong = parse(path), convert(hone, path, folder), []
    full, bits = not trl["use_peft"], trl["load_in_4bit"]
    for option, name in SAME.items():
        if (option in LORA and full) or (option == "bnb_4bit_use_double_quant" and not bits):
            continue
        if option == "warmup_steps" and number(ours["warmup_ratio"]) > 0:       # deprecated in TRL, which makes it a fraction
            continue
        if number(ours[option]) != number(trl[name]):
            wrong.append(f"{option}: {ours[option]}, TRL has {trl[name]}")
    expected = {
        "finetuning_type": "full" if full else "lora",
        "max_length": str(trl["max_length"] or 0),
        "max_steps": str(max(trl["max_steps"], 0)),
        "lr_scheduler_type": str(getattr(trl["lr_scheduler_type"], "value", trl["lr_scheduler_type"])).replace("_with_warmup", ""),
        "dtype": "bfloat16" if trl["bf16"] else "float16" if trl["fp16"] else trl["dtype"],
    }
    wrong += [f"{option}: {ours[option]}, TRL has {value}" for option, value in expected.items() if ours[option] != value]
    print(f"{path.name}: {len(SAME) + len(expected)} values{': ' if wrong else ' equal'}{'; '.join(wrong)}")
    return not wrong


def known():
    """Whether the table has every key of TRL's arguments."""
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, SFTConfig
    page = (pathlib.Path(__file__).parents[2] / "docs/configs.md").read_text()
    keys = {key for row in page.splitlines() if row.startswith("| `") for key in re.findall(r"`([\w.\[\]*]+)`", row)}
    starts = tuple(key[:-1] for key in keys if key.endswith("*"))
    fields = {field.name for c in (DatasetMixtureConfig, ModelConfig, ScriptArguments, SFTConfig) for field in dataclasses.fields(c)}
    missing = sorted(name for name in fields if name not in keys and not name.startswith(starts) and not any(k.startswith(name + ".") for k in keys))
    print(f"{len(fields)} keys of TRL, not in the table: {', '.join(missing) or 'none'}")
    return not missing


def main():
    hone, configs = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        few = pathlib.Path(folder) / "few.yaml"
        few.write_text("model_name_or_path: model\ndataset_name: data.jsonl\n")
        lora = pathlib.Path(folder) / "lora.yaml"
        lora.write_text("model_name_or_path: model\ndataset_name: data.jsonl\nuse_peft: true\nload_in_4bit: true\n")
        paths = [few, lora]
        for path in sorted(configs.glob("*.yaml")):
            paths.append(pathlib.Path(folder) / path.name)
            paths[-1].write_text(re.sub(r"(?m)^tf32: .*\n", "", path.read_text()))     # which TRL takes only on a GPU
        good = [compare(os.path.abspath(hone), path.resolve(), folder) for path in paths]
    return 0 if len(paths) > 4 and known() and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
