#!/usr/bin/env python3
"""What people type wrong, and what hone says: each mistake with its exit code, and the words of its message that name the cause and
the remedy. One line, and no crash.

    mistakes.py HONE ASSETS DATA [--print]      --print: all of them with what is said
"""
import concurrent.futures
import gzip
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from case import ASSETS, CHAT, HONE, TINY, main, run

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 269060552\n"
PAGE = "<!DOCTYPE html>\n<html><body>Hugging Face</body></html>\n"


def make(d):
    """The files that a user may have, and name wrongly."""
    def write(name, content):
        path = d / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def rows(name, *rows):
        write(name, "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))

    def model(name, **files):
        """A copy of the tiny model with other contents, or without a file (None)."""
        shutil.copytree(TINY, d / name)
        for file, content in files.items():
            path = d / name / file.replace("__", ".")
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())

    config = json.loads((TINY / "config.json").read_text())
    rows("chats.jsonl", *[CHAT] * 4)
    rows("other.jsonl", *[{"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]}] * 4)
    few = ("--model", TINY, "--data", d / "chats.jsonl", "--max-steps", 2, "--save-steps", 1)
    for line in (("train", *few, "--output", d / "out"),
                 ("export", "--model", TINY, "--adapter", d / "out", "--output", d / "adapter.gguf"),
                 ("quantize", "--model", TINY, "--output", d / "base.gguf", "--type", "q8_0")):
        assert run(*line).returncode == 0, line
    for copy in range(5):
        shutil.copytree(d / "out", d / f"out-{copy}")
    shutil.copytree(d / "out", d / "cut")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (d / "cut" / name).unlink()
    shutil.copytree(d / "out", d / "unset")
    (d / "unset/adapter_model.safetensors").unlink()
    shutil.copytree(d / "unset", d / "binary")
    write("binary/adapter_model.bin", b"PK\3\4")
    shutil.copytree(d / "out", d / "strange")
    (d / "bare").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(d / "out" / name, d / "bare")
    write("bare/checkpoint-500/trainer_state.json", '{"global_step": 500}')
    (d / "gone.jsonl").symlink_to("/nowhere/rows.jsonl")
    shutil.copytree(TINY, d / "tuned")
    weights = bytearray((d / "tuned/model.safetensors").read_bytes())
    for at in range(8 + int.from_bytes(weights[:8], "little"), len(weights) - 2, 1024):
        weights[at] ^= 1
    (d / "tuned/model.safetensors").write_bytes(weights)
    for name, base in (("lost", "/nowhere/model"), ("distant", "nobody/model"), ("nameless", None)):
        shutil.copytree(d / "out", d / name)
        write(f"{name}/adapter_config.json",
              json.dumps({**json.loads((d / "out/adapter_config.json").read_text()), "base_model_name_or_path": base}))
    write("strange/adapter_config.json", json.dumps({**json.loads((d / "out/adapter_config.json").read_text()), "peft_type": "LOKR"}))

    model("pointer", model__safetensors=LFS)
    model("pointed", config__json=LFS)
    model("pointing", tokenizer__json=LFS)
    model("page", config__json=PAGE)
    model("torn", model__safetensors=(TINY / "model.safetensors").read_bytes()[:-100])
    model("pickled", model__safetensors=None, pytorch_model__bin=b"PK\3\4")
    model("weightless", model__safetensors=None)
    model("mute", tokenizer__json=None)
    model("shapeless", config__json=None)
    model("piece", tokenizer__json=None, tokenizer__model=b"\n")
    model("bert", config__json=json.dumps({"model_type": "bert", "hidden_size": 8}))
    model("typeless", config__json=json.dumps({"hidden_size": 8}))
    model("broken", config__json='{"model_type": "llama",')
    model("list", config__json="[1, 2]")
    model("headless", config__json=json.dumps({k: v for k, v in config.items() if k != "num_attention_heads"}))
    model("wide", config__json=json.dumps({**config, "hidden_size": 2 * config["hidden_size"]}))
    model("gptq", config__json=json.dumps({**config, "quantization_config": {"quant_method": "gptq", "bits": 4}}))
    model("silent", tokenizer_config__json="{}", chat_template__jinja=None)
    (d / "empty").mkdir()
    (d / "above").mkdir()
    (d / "above/tiny").symlink_to(TINY)
    (d / "models--a--b/snapshots").mkdir(parents=True)
    (d / "models--a--b/snapshots/0123").symlink_to(TINY)
    (d / "held").mkdir()
    shutil.copy(d / "base.gguf", d / "held/base.gguf")
    shutil.copy(d / "base.gguf", d / "base.bin")
    write("false.gguf", "this is not a model")
    write("pointer.gguf", LFS)
    write("short.gguf", (d / "base.gguf").read_bytes()[:1000])
    write("images/model_index.json", "{}")
    write("meta/params.json", "{}")

    write("prose.txt", "It was a bright cold day in April, and the clocks were striking thirteen.\nWinston Smith\n")
    write("paper.pdf", b"%PDF-1.7\n%\xe2\xe3\n")
    write("photo.png", b"\x89PNG\r\n\x1a\n\0\0")
    write("photo.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF")
    write("letter.docx", b"PK\3\4\x14\0")
    write("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    write("rows.db", b"SQLite format 3\0")
    write("page.jsonl", PAGE)
    write("lfs.jsonl", LFS)
    write("wide.jsonl", "\ufeff".encode("utf-16") + "{}".encode("utf-16-le"))
    write("latin.jsonl", '{"text": "caf\xe9"}\n'.encode("latin-1"))
    write("nothing.jsonl", "")
    write("blank.jsonl", "\n\n  \n")
    write("packed.jsonl.gz", '{"text": "a"}\n')
    write("torn.jsonl.gz", gzip.compress(json.dumps(CHAT).encode() * 100)[:-20])
    write("data/rows.jsonl", json.dumps(CHAT))
    write("two/train.jsonl", json.dumps(CHAT))
    write("two/train.json", json.dumps([CHAT]))
    rows("quotes.jsonl", "{'messages': [{'role': 'user', 'content': 'Hi'}]}")
    rows("strings.jsonl", '"Hello"')
    rows("keys.jsonl", {"question": "a", "answer": "b"})
    rows("half.jsonl", {"prompt": "a"})
    rows("both.jsonl", {"messages": CHAT["messages"], "text": "a"})
    rows("role.jsonl", {"messages": [{"role": "human", "content": "Hi"}, {"role": "asistant", "content": "Ho"}]})
    rows("alone.jsonl", {"messages": [{"role": "user", "content": "Hi"}]})
    rows("image.jsonl", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, *CHAT["messages"][1:]]})
    rows("number.jsonl", {"text": 5})
    rows("long.jsonl", CHAT, {"messages": [CHAT["messages"][0], {"role": "assistant", "content": "word " * 4000}]})
    write("indented.json", json.dumps(CHAT, indent=2))
    write("nested.json", json.dumps({"train": [CHAT]}))
    rows("one.jsonl", CHAT)

    write("list.yaml", f"- model: {TINY}\n- seed: 3\n")
    write("text.yaml", "train the model please\n")
    write("tab.yaml", "seed: 1\n\tdata: x\n")
    write("twice.yaml", "seed: 1\nseed: 2\n")
    write("wrong.yaml", f"model: {TINY}\nlerning_rate: 1e-4\n")
    write("value.yaml", "learning_rate: fast\n")
    write("many.yaml", "model: [a, b]\n")
    write("deep.yaml", "lora:\n  r: 8\n")
    write("dpo.yml", f"base_model: {TINY}\ndatasets: [{{path: a.jsonl}}]\nlearning_rate: 1e-4\nrl_beta: 0.1\nrl: dpo\n")
    write("wandb.yaml", f"model: {TINY}\nwandb_project: mine\n")
    write("file", "a file")
    (d / "full").mkdir()
    write("full/notes.txt", "mine")


GOOD = "--model {tiny} --data {d}/chats.jsonl"
TRAIN = "train " + GOOD + " --output {new}"
BROKEN = TRAIN.replace("chats.jsonl", "quotes.jsonl")
AGAIN = "train " + GOOD + " --output {d}/out-{copy} --save-steps 1 --max-steps 2"       # each in a copy of its own

# The exit code, what is typed in the directory of the files above, and what the message must have in it.
TABLE = [
    # Commands
    (2, "evl", "eval", "hone --help"),
    (2, "trian --model x", "train"),
    (2, "finetune --model x", "hone train"),
    (2, "infer", "hone generate"),
    (2, "merge-lora", "hone merge"),
    (2, "serve", "llama.cpp"),
    (2, "frobnicate", "hone --help lists all"),
    (2, "--model x train", "a command comes first"),
    (2, "--train", "a command comes first"),
    (2, "Train", "train"),
    (2, "completion zsh", "'zsh'", "bashcompinit"),
    (2, "inspect {tiny}", "none of model, data, adapter, checkpoint", "hone inspect model --model DIR"),
    (2, "help nonsense", "hone --help lists all"),
    (2, "inspect rows", "none of model, data, adapter, checkpoint", "--help"),
    (2, "inspect adapter", "needs a directory", "hone inspect adapter DIR"),
    (3, "inspect adapter {d}/empty", "no adapter there", "name a folder"),
    (2, "inspect adapter {tiny}", "but a model", "hone inspect model"),
    (3, "inspect adapter {d}/cut", "its run has not ended"),
    (3, "inspect checkpoint {d}/empty", "no checkpoint there", "checkpoint-N"),
    (3, "inspect checkpoint {d}/nune", "no such directory", "checkpoint-N"),
    (2, "kernels compile --model {tiny}", "list", "build"),
    # Options
    (2, TRAIN + " --lerning-rate 1", "--learning-rate"),
    (2, TRAIN + " --learning-rate", "needs a value", "max learning rate"),
    (2, TRAIN + " --learning-rate --seed 3", "needs a value before '--seed'"),
    (2, TRAIN + " --learning-rate fast", "cannot be 'fast'", "a number of at least 0"),
    (2, TRAIN + " --learning-rate -1", "cannot be '-1'", "at least 0"),
    (2, TRAIN + " --learning-rate 1e-4,2e-4", "cannot be", "a number"),
    (2, TRAIN + " --learning-rate 2e–4", "cannot be", "a number"),
    (2, TRAIN + " --num-train-epochs 0", "above 0"),
    (2, TRAIN + " --max-steps 1.5", "a whole number"),
    (2, TRAIN + " --max-steps 1k", "a whole number"),
    (2, TRAIN + " --per-device-train-batch-size 0", "at least 1"),
    (2, TRAIN + " -r 0", "from 1"),
    (2, TRAIN + " --lora-dropout 1", "from 0 to below 1"),
    (2, TRAIN + " --dtype bf61", "bfloat16"),
    (2, TRAIN + " --dtype int8", "--load-in-4bit"),
    (2, TRAIN + " --optim sgd", "adamw", "lion"),
    (2, TRAIN + " --optim sgd_8bit", "adamw or lion"),
    (2, TRAIN + " --lr-scheduler-type exponential", "cosine"),
    (2, TRAIN + " --recompute yes", "auto"),
    (2, TRAIN + " --finetuning-type dora", "lora"),
    (2, TRAIN + " --packing=maybe", "true or false"),
    (2, TRAIN + " --fp16", "--dtype float16"),
    (2, TRAIN + " --wandb", "metrics.jsonl"),
    (2, TRAIN + " --logging-steps 10", "metrics.jsonl"),
    (2, TRAIN + " --flash-attn", "leave it out"),
    (2, TRAIN + " --deepspeed z.json", "--shard optimizer"),
    (2, TRAIN + " --load-in-8bit", "--load-in-fp8", "--load-in-4bit"),
    (2, TRAIN + " --dtype fp8", "bfloat16", "--load-in-fp8"),
    (2, TRAIN + " --prompt Hi", "belongs to hone generate"),
    (2, TRAIN + " --adapter {d}/out", "--init-adapter"),
    (2, TRAIN + " --overwrite-output-dir", "--resume none"),
    (2, TRAIN + " lr=1e-4", "write --lr=1e-4"),
    (2, TRAIN + " 16", "unexpected argument '16'"),
    (2, "generate --model {tiny} --prompt What is this?", "unexpected argument 'is'", "needs quotes"),
    (2, "generate {tiny}", "unexpected argument", "write --model {tiny}"),
    (2, "inspect model {tiny}", "write --model {tiny}"),
    (2, "chat {d}/base.gguf", "write --model {d}/base.gguf"),
    (2, "train {d}/chats.jsonl", "write --data {d}/chats.jsonl"),
    (2, "inspect data {d}/chats.jsonl", "write --data {d}/chats.jsonl"),
    (2, "generate {d}/chats.jsonl", "options start with --"),
    (3, "generate {d}/nune --prompt Hi", "{d}/nune: no adapter there: no such directory", "name a folder"),
    (3, "generate nune --prompt Hi --max-new-tokens 3", "nune: no adapter there", "name a folder"),
    (2, "quantize {d}/out", "write --model {d}/out"),
    (2, "train —model {tiny}", "a long dash", "--model"),
    (2, "eval " + GOOD + " --lr 1", "belongs to hone train"),
    (2, "eval " + GOOD + " --seed 1", "belongs to hone train"),
    (2, "devices --model x", "belongs to"),
    (2, TRAIN + " --lora-target-modules q_proj v_proj", "unexpected argument 'v_proj'", "separated by commas"),
    (2, TRAIN + " --lora-target-modules \"['q_proj']\"", "not a module's name", "q_proj,v_proj"),
    (2, TRAIN + " --warmup-steps 0.03", "--warmup-ratio"),
    (2, TRAIN + " --save-total-limit 0", "at least 1"),
    # Configuration files
    (3, "train --config {d}/nune.yaml", "no such file", "--config"),
    (3, "train --config {d}/lits.yaml", "no such file, but", "list.yaml"),
    (3, "train --config {d}", "is a directory"),
    (4, "train --config {d}/list.yaml", "list.yaml:1", "name: value", "list"),
    (4, "train --config {d}/text.yaml", "text.yaml:1", "name: value"),
    (4, "train --config {d}/tab.yaml", "tab.yaml:2", "not valid YAML"),
    (2, "train --config {d}/twice.yaml", "twice.yaml:2", "already given in line 1", "keep one"),
    (2, "train --config {d}/wrong.yaml", "wrong.yaml:2", "learning_rate"),
    (2, "train --config {d}/value.yaml", "value.yaml:1", "a number"),
    (2, "train --config {d}/many.yaml", "many.yaml:1", "one value, not a list"),
    (2, "train --config {d}/deep.yaml", "deep.yaml", "not a mapping"),
    (2, "train {d}/dpo.yml", "dpo.yml: this is a config for another method of training, dpo (rl in line 5)", "trains the chosen answer",
     "rl_beta: 0.1 (line 4): not done"),
    (2, "train --config {d}/wandb.yaml", "wandb.yaml:2", "metrics.jsonl"),
    (2, "train --config {d}/chats.jsonl", "chats.jsonl:1", "unknown key 'messages'"),
    # What is missing
    (2, "train", "--model DIR", "Hugging Face"),
    (2, "train --model {tiny}", "--data FILE", "rows"),
    (2, "train " + GOOD, "--output DIR"),
    (2, "eval --model {tiny}", "--data FILE"),
    (2, "generate --model {tiny}", "--prompt TEXT"),
    (2, "plan", "--model DIR"),
    (2, "pull", "hone pull ORG/NAME"),
    (2, "inspect data --model {tiny}", "--data FILE"),
    (2, "merge --model {tiny}", "--output DIR"),
    (2, "merge --model {tiny} --output {new}", "--adapter DIR"),
    (2, "quantize --model {tiny}", "--output DIR"),
    (2, "kernels build --model {tiny} --output {d}/k", "--target"),
    # Models
    (3, "plan --model {d}/nune", "no such directory", "config.json"),
    (3, "plan --model {d}/emty", "no such directory, but", "empty is there"),
    (3, "plan --model {d}/no/such/model", "not even", "is there"),
    (3, "plan '--model=~/model'", "a shell expands ~"),
    (3, "plan '--model=$HOME/model'", "expand $"),
    (3, "plan --model https://huggingface.co/a/b", "no such directory", "`hone pull a/b`", "--model a/b"),
    (3, "plan --model https://huggingface.co/models", "`hone pull ORG/NAME`"),
    (3, "plan --model '{tiny} '", "ends in a blank"),
    (2, "plan --model ''", "a path"),
    (3, "plan --model {d}/empty", "an empty directory", "config.json"),
    (3, "plan --model {tiny}/config.json", "a file, not a directory", "--model {tiny}"),
    (3, "plan --model {tiny}/model.safetensors", "a file, not a directory", "--model {tiny}"),
    (3, "plan --model {d}/file", "a file, not a directory", ".gguf"),
    (2, "plan --model {d}/out", "an adapter, not a model", "--init-adapter"),
    (2, "eval --model {d}/out --data {d}/chats.jsonl", "an adapter, not a model", "with --adapter"),
    (3, "plan --model {d}/cut", "run that has not ended", "again"),
    (3, "plan --model {d}/data", "no config.json", "--model names a folder"),
    (3, "plan --model {d}/above", "a directory in it has", "above/tiny"),
    (3, "plan --model {d}/models--a--b", "cache of Hugging Face", "snapshots/0123"),
    (3, "plan --model {d}/held", "GGUF file", "held/base.gguf"),
    (3, "plan --model {d}/base.bin", "does not end in .gguf", "rename it"),
    (3, "plan --model {d}/shapeless", "config.json: no such file", "downloaded with the model"),
    (7, "plan --model {d}/images", "a model of images"),
    (7, "plan --model {d}/meta", "params.json", "config.json"),
    (7, "plan --model {d}/bert", "no model family \"bert\"", "llama"),
    (4, "plan --model {d}/typeless", "\"model_type\" is missing", "Download it again"),
    (4, "plan --model {d}/broken", "config.json: line 1", "download it again"),
    (4, "plan --model {d}/list", "config.json", "a JSON object"),
    (4, "plan --model {d}/headless", "\"num_attention_heads\" is missing", "download the file again"),
    (4, "plan --model {d}/pointed", "config.json: a Git LFS pointer", "git lfs pull"),
    (4, "plan --model {d}/page", "config.json: a web page", "/resolve/"),
    (7, "eval --model {d}/gptq --data {d}/chats.jsonl", "gptq"),
    (4, "eval --model {d}/pointer --data {d}/chats.jsonl", "model.safetensors: a Git LFS pointer", "git lfs pull"),
    (4, "eval --model {d}/pointing --data {d}/chats.jsonl", "tokenizer.json: a Git LFS pointer", "git lfs pull"),
    (4, "eval --model {d}/torn --data {d}/chats.jsonl", "model.safetensors", "incomplete", "download it again"),
    (4, "eval --model {d}/wide --data {d}/chats.jsonl", "shape", "config.json asks for"),
    (3, "eval --model {d}/pickled --data {d}/chats.jsonl", "pytorch_model.bin", "save_pretrained"),
    (3, "eval --model {d}/weightless --data {d}/chats.jsonl", "neither model.safetensors", "download the weights"),
    (3, "eval --model {d}/mute --data {d}/chats.jsonl", "tokenizer.json: no such file", "download"),
    (3, "eval --model {d}/piece --data {d}/chats.jsonl", "tokenizer.model is there", "save_pretrained"),
    (7, "eval --model {d}/silent --data {d}/chats.jsonl", "chat template"),
    (4, "plan --model {d}/false.gguf", "is not a GGUF file", "download it again"),
    (4, "plan --model {d}/pointer.gguf", "a Git LFS pointer", "git lfs pull"),
    (4, "plan --model {d}/short.gguf", "short.gguf", "cut off", "download it again"),
    (4, "plan --model {d}/adapter.gguf", "an adapter, not a model"),
    (3, "plan --model {d}/none.gguf", "no such file"),
    # Adapters
    (2, "generate --model {d}/tuned --prompt Hi --adapter {d}/out", "other weights", "those of {tiny}", "--any-base"),
    (2, "chat --model {d}/tuned --adapter {d}/out", "other weights", "name that base as --model", "--any-base"),
    (2, "eval {d}/out --model {d}/tuned --data {d}/chats.jsonl", "other weights", "--any-base"),
    (2, "merge {d}/out --model {d}/tuned --output {new}.gguf", "other weights", "--any-base"),
    (2, "export {d}/out --model {d}/tuned --output {new}.gguf", "other weights", "--any-base"),
    (2, TRAIN.replace("{tiny}", "{d}/tuned") + " --init-adapter {d}/out", "other weights", "--any-base"),
    (3, "generate {d}/lost --prompt Hi", "its base is /nowhere/model", "name it with --model"),
    (3, "chat {d}/distant", "its base is nobody/model", "`hone pull nobody/model`"),
    (2, "merge {d}/nameless --output {new}", "names no base", "--model"),
    (3, "chat {d}/uot", "no adapter there", "out is there"),
    (2, "chat temperature", "write --temperature"),
    (2, "generate Hello", "options start with --"),
    (3, "export {d}/empty --output {new}.gguf", "no adapter there", "name a folder"),
    (2, "plan --any-base=2 --model {tiny}", "any-base", "true"),
    (3, "generate --model {tiny} --prompt Hi --adapter {d}/uot", "no adapter there", "out is there"),
    (3, "generate --model {tiny} --prompt Hi --adapter {d}/cut", "its run has not ended", "again"),
    (3, "merge --model {tiny} --output {new} --adapter {d}/cut", "its run has not ended", "again"),
    (3, "generate --model {tiny} --prompt Hi --adapter {d}/out/adapter_model.safetensors", "a file", "name a folder"),
    (3, "generate --model {tiny} --prompt Hi --adapter {d}/unset", "no adapter_model.safetensors", "download"),
    (3, "generate --model {tiny} --prompt Hi --adapter {d}/binary", "adapter_model.bin", "save_pretrained"),
    (2, "generate --model {tiny} --prompt Hi --adapter {tiny}", "a model", "give only --model"),
    (2, TRAIN + " --init-adapter {tiny}", "a model", "give only --model"),
    (2, "inspect adapter {tiny}", "a model", "hone inspect model --model {tiny}"),
    (2, "generate --model {tiny} --prompt Hi --adapter {d}/adapter.gguf", "no GGUF adapters", "adapter_config.json"),
    (3, "generate --model {tiny} --prompt Hi --adapter {d}/empty", "no adapter there", "name a folder"),
    (7, "generate --model {tiny} --prompt Hi --adapter {d}/strange", "peft_type", "LORA"),
    (4, "generate --model {other} --prompt Hi -n 8 --adapter {d}/out", "made for another model"),
    # Data
    (3, "eval --model {tiny} --data {d}/chat.jsonl", "no such file, but", "chats.jsonl is there"),
    (3, "eval --model {tiny} --data {d}/chats", "no such file, but", "chats.jsonl is there"),
    (3, "eval --model {tiny} --data https://example.org/a.jsonl", "only what is on this machine", "download it"),
    (3, "eval --model {tiny} --data '{d}/*.jsonl'", "expands * only outside of quotes", "commas"),
    (3, "eval --model {tiny} --data {d}/gone.jsonl", "gone.jsonl: no such file: it is a link to /nowhere/rows.jsonl, which is not there"),
    (3, "eval --model {tiny} --data {d}/nune.jsonl", "no such file", "--data names files"),
    (3, TRAIN + " --eval-data {d}/nune.jsonl", "no such file", "--eval-data names files"),
    (3, "eval --model {tiny} --data {d}/data", "no test.jsonl", "name the file itself"),
    (3, "train --model {tiny} --output {new} --data {d}/data", "no train.jsonl", "name the file itself"),
    (2, "train --model {tiny} --output {new} --data {d}/two", "train.jsonl", "name the one that is meant"),
    (2, "eval --model {tiny} --data {d}/chats.jsonl,", "an empty name", "leave out the comma"),
    (3, "eval --model {tiny} --data ' {d}/chats.jsonl , {d}/nune.jsonl'", "no such file, but", "one.jsonl is there"),
    (3, "eval --model {tiny} --data trl-lib/Capybara", "not data sets", "--repo-type dataset trl-lib/Capybara"),
    (2, "eval --model {tiny} --data {d}/chats.jsonl:0", "above 0"),
    (9, "eval --model {tiny} --data {d}/prose.txt", "prose.txt:1", "{{\"text\": \"...\"}}"),
    (4, "eval --model {tiny} --data {d}/paper.pdf", "a PDF document", "rows of JSON", "pdftotext"),
    (4, "eval --model {tiny} --data {d}/photo.png", "an image", "rows of JSON"),
    (4, "eval --model {tiny} --data {d}/photo.jpg", "an image", "rows of JSON"),
    (7, "eval --model {tiny} --data {d}/letter.docx", "a zip archive", "save it as text"),
    (4, "eval --model {tiny} --data {d}/old.doc", "an Office document", "save it as text"),
    (4, "eval --model {tiny} --data {d}/rows.db", "an SQLite database", "export"),
    (4, "eval --model {tiny} --data {d}/page.jsonl", "a web page", "/resolve/"),
    (4, "eval --model {tiny} --data {d}/lfs.jsonl", "a Git LFS pointer", "git lfs pull"),
    (4, "eval --model {tiny} --data {d}/base.gguf", "a GGUF file", "rows of JSON"),
    (7, "eval --model {tiny} --data {d}/wide.jsonl", "UTF-16", "iconv"),
    (9, "eval --model {tiny} --data {d}/latin.jsonl", "latin.jsonl:1", "UTF-8"),
    (9, "eval --model {tiny} --data {d}/nothing.jsonl", "no rows", "a JSON object"),
    (9, "eval --model {tiny} --data {d}/blank.jsonl", "no rows", "a JSON object"),
    (4, "eval --model {tiny} --data {d}/packed.jsonl.gz", "not packed", "rename it"),
    (4, "eval --model {tiny} --data {d}/torn.jsonl.gz", "broken at byte", "pack it again"),
    (9, "eval --model {tiny} --data {d}/quotes.jsonl", "quotes.jsonl:1", "double quotes"),
    (9, "eval --model {tiny} --data {d}/strings.jsonl", "strings.jsonl:1", "not a JSON object"),
    (9, "eval --model {tiny} --data {d}/keys.jsonl", "\"question\", \"answer\"", "known are \"messages\""),
    (2, "eval --model {tiny} --data {d}/keys.jsonl --column-mapping prompt=question,completion=answer,system=a", "no \"system\"",
     "take instruction and output"),
    (9, "eval --model {tiny} --data {d}/half.jsonl", "\"prompt\" but no \"completion\""),
    (9, "eval --model {tiny} --data {d}/both.jsonl", "two kinds", "keep the keys of one"),
    (9, "eval --model {tiny} --data {d}/role.jsonl", "the role \"human\"", "user, assistant"),
    (9, "eval --model {tiny} --data {d}/alone.jsonl", "no message of the assistant", "--bad-rows skip"),
    (9, "eval --model {tiny} --data {d}/image.jsonl", "only text"),
    (9, "eval --model {tiny} --data {d}/number.jsonl", "\"text\" is a number", "not a string"),
    (9, "eval --model {tiny} --data {d}/indented.json", "indented.json:1", "a row must stand on one line, or in an array"),
    (9, "eval --model {tiny} --data {d}/nested.json", "\"train\"", "known are"),
    (9, "eval --model {tiny} --data {d}/long.jsonl", "long.jsonl:2", "the limit is 256, the model's window, and 1 of 2 rows has more", "--excess-length"),
    (2, TRAIN.replace("chats.jsonl", "one.jsonl") + " --val-set-size 0.5", "nothing is left to train on", "lower it"),
    # Training
    (2, TRAIN + " --max-length 1000000", "above the model's window", "tokens"),
    (9, TRAIN + " --max-length 10", "the limit is 10", "--excess-length"),
    (9, TRAIN + " --max-length 10 --excess-length drop", "left none of them", "raise it"),
    (2, "train --model {tiny} --data {d}/chats.jsonl --output {tiny}", "the model's own directory", "name another"),
    (2, "train " + GOOD + " --output {d}/tuned", "--output {d}/tuned has a model that is of no run of hone", "name another"),
    (2, "train " + GOOD + " --output {d}/bare", "--output {d}/bare has an adapter that is of no run of hone", "name another"),
    (2, "train --model {tiny} --data {d}/chats.jsonl --init-adapter {d}/out --output {d}/out", "the directory of --init-adapter", "name another"),
    (2, "train " + GOOD + " --output {d}/out/checkpoint-2", "--output {d}/out/checkpoint-2 is a checkpoint", "name another one"),
    (2, "train " + GOOD + " --output {d}/out/checkpoint-2/a/b", "--output {d}/out/checkpoint-2/a/b is in a checkpoint", "name another one"),
    (2, "train " + GOOD + " --init-adapter {d}/out/checkpoint-1 --output {d}/out/", "a checkpoint in --output", "name another --output"),
    (2, TRAIN + ".safetensors", "several files", "a directory"),
    (3, TRAIN + " --init-adapter {d}/nune", "no adapter there", "name a folder"),
    (3, TRAIN + " --resume {d}/out/checkpoint-77", "no such checkpoint", "auto, none, or a folder checkpoint-N"),
    (2, TRAIN + " --eval-data {d}/chats.jsonl --val-set-size 1", "give only one of them"),
    (2, TRAIN + " --finetuning-type full --load-in-4bit", "--load-in-4bit is for LoRA"),
    (2, TRAIN + " --finetuning-type full --load-in-fp8", "--load-in-fp8 is for LoRA"),
    (2, TRAIN + " --load-in-4bit --load-in-fp8", "take one of them"),
    (2, TRAIN + " --finetuning-type qlora --load-in-fp8", "take one of them"),
    (2, "train --model {d}/base.gguf --data {d}/chats.jsonl --output {new} --load-in-fp8", "leave out", "--load-in-fp8"),
    (2, TRAIN + " --finetuning-type full --init-adapter {d}/out", "--init-adapter is for LoRA"),
    (2, TRAIN + " --init-adapter {d}/out -r 4", "cannot be given with --init-adapter"),
    (2, TRAIN + " --lora-target-modules query,value", "query", "this model has q_proj"),
    (2, TRAIN + " --rank-pattern q_proj", "as in q_proj=8"),
    (2, TRAIN + " --lora-target-parameters mlp.experts.down_proj", "no experts", "leave it out"),
    (7, TRAIN + " --dtype float16 --device cpu", "float16 is for GPUs", "bfloat16"),
    (6, TRAIN + " --device cuda", "cuda", "--device cpu"),
    (2, TRAIN + " --device gpu", "cuda", "hone devices"),
    (2, TRAIN + " --device cuda:x", "cuda"),
    (2, "train --model {d}/base.gguf --data {d}/chats.jsonl --output {new} --finetuning-type full", "a base for LoRA"),
    (2, "train --model {d}/base.gguf --data {d}/chats.jsonl --output {new} --qlora", "lora for qlora"),
    (3, TRAIN + "/../file", "there is a file of this name"),
    (2, AGAIN.replace("{copy}", "0").replace("--max-steps 2", "--max-steps 60"), "max_steps 2", "this one has 60", "--resume none", "to train longer",
     "--init-adapter {d}/out-0 --output ANOTHER"),
    (2, AGAIN.replace("{copy}", "1") + " --lr 1e-3", "learning_rate", "--resume none"),
    (2, AGAIN.replace("{copy}", "4") + " --lr 1e-3 --seed 7 -r 3", "learning_rate", "; seed 42, this one has 7", "lora_r"),
    (2, AGAIN.replace("{copy}", "2").replace("chats", "other"), "other data", "--resume none"),
    (2, AGAIN.replace("{copy}", "3").replace("{tiny}", "{other}"), "--resume none"),
    (3, TRAIN + " --resume {d}/nune", "nune", "checkpoint-N"),
    (3, TRAIN + " --resume {d}/empty", "not a checkpoint", "checkpoint-N"),
    # Wrong options are reported before the data is read, which may take long: here all of it is broken
    (2, BROKEN + " --lora-target-modules query,value", "query", "this model has q_proj"),
    (2, BROKEN + " --adam-epsilon 0", "--adam-epsilon", "1e-30"),
    (2, BROKEN + " --eval-steps 5 --evals-per-epoch 2", "--eval-steps and --evals-per-epoch both say", "give only one of them"),
    (2, BROKEN + " --save-steps 5 --save-strategy epoch", "--save-steps and --save-strategy both say", "--saves-per-epoch 0 takes --save-strategy back"),
    (2, BROKEN + " --eval-strategy no", "it takes epoch or steps", "--eval-data"),
    (2, BROKEN + " --save-strategy no", "it takes epoch or steps", "--save-steps 0"),
    (2, BROKEN + " --eval-steps 0.1", "--evals-per-epoch"),
    (2, BROKEN + " --early-stopping-patience 2", "needs validations", "--eval-data FILE"),
    (2, BROKEN + " --load-best-model-at-end", "needs validations"),
    (2, BROKEN + " --early-stopping-threshold 2 --val-set-size 1", "--early-stopping-patience"),
    (2, BROKEN + " --val-set-size 1.5", "a fraction of the rows"),
    (2, BROKEN + " --val-set-size 1 --eval-data {d}/chats.jsonl", "give only one of them"),
    (2, BROKEN + " --lr-scheduler-type cosine --lr-end 1e-7", "--lr-scheduler-type polynomial"),
    (2, BROKEN + " --lr-scheduler-type warmup_stable_decay --max-steps 10 --num-decay-steps 20", "--num-decay-steps"),
    (2, "train --model {tiny} --data {d}/quotes.jsonl --output {tiny}", "the model's own directory"),
    # Generation
    (2, "generate --model {tiny} --prompt ''", "the prompt is empty", "--prompt TEXT"),
    (2, "generate --model {tiny} --prompt -", "standard input is empty", "--prompt TEXT"),
    (2, "generate --model {tiny} --prompt Hi --max-new-tokens 100000", "window", "--max-new-tokens"),
    (2, "generate --model {tiny} --prompt Hi --top-p 2", "up to 1"),
    (2, "generate --model {tiny} --prompt Hi --top-k -1", "at least 0"),
    (2, "generate --model {tiny} --prompt Hi --presence-penalty 3", "from -2 to 2"),
    (2, "generate --model {tiny} --prompt Hi --repetition-penalty 0", "above 0"),
    (2, "generate --model {tiny} --prompt Hi --logit-bias 5", "as a JSON object"),
    (2, "generate --model {tiny} --prompt Hi --stop ''", "not empty"),
    (2, "generate --model {tiny} --prompt Hi --stop '[\"a\"'", "JSON list"),
    (2, "generate --model {tiny} --prompt Hi --logprobs 3", "add --json"),
    (2, "generate --model {tiny} --prompt Hi -ngl 99", "--device"),
    (2, "generate --model {tiny} --prompt Hi -n 0", "from 1"),
    # Export
    (2, "merge --model {tiny} --adapter {d}/out --output {d}/full", "exists", "another --output"),
    (2, "merge --model {tiny} --adapter {d}/out --output {d}/base.gguf", "base.gguf: exists", "--overwrite"),
    (2, "merge --model {tiny} --adapter {d}/out --output {tiny} --overwrite", "--output must not be what is read"),
    (2, "merge --model {tiny} --adapter {d}/out --output {d}/merged --type q4_k_m", "name a file that ends in .gguf"),
    (2, "merge --model {tiny} --adapter {d}/out --output {new}.gguf --type q3", "q4_k_m"),
    (2, "merge --model {tiny} --adapter {d}/out --output {new}.gguf --type q6_k", "q8_0"),
    (7, "merge --model {d}/base.gguf --adapter {d}/out --output {d}/merged", "FILE.gguf"),
    (2, "export --model {tiny} --adapter {d}/out --output {new}.gguf --type q8_0", "f32, f16 or bf16"),
    (2, "merge --model {tiny} --adapter {d}/out --output {new}.GGUF", "write .gguf in small letters"),
    (2, "merge --model {tiny} --adapter {d}/out --output {new}.safetensors", "several files", "a directory"),
    (2, "export --model {tiny} --adapter {d}/out --output {new}.onnx", "several files", "without .onnx"),
    (2, "merge --model {tiny} --adapter {d}/out --output {new}.ckpt", "several files", "without .ckpt"),
    (2, "export --model {tiny} --adapter {d}/out --output {d}/out", "must not be what is read"),
    (2, "quantize --model {tiny} --output {new}", "FILE.gguf"),
    (3, "quantize --model {tiny} --output {d}/file/new.gguf", "file"),
    # Inspecting and the rest
    (2, "inspect data --model {tiny} --data {d}/chats.jsonl --row 9", "4 rows"),
    (2, "inspect model", "--model DIR"),
    (3, "inspect data --model {tiny} --data {d}/chats.jsonl --html {d}/file/page.html", "file"),
    (2, "bench --model {tiny} --max-steps 0x", "a whole number"),
    (3, "plan --model {tiny} --sign {d}/nope.key", "nope.key"),
    (3, "plan --model {tiny} --resume {d}/nune", "nune", "checkpoint-N"),
    (2, "train --model {tiny} --world 2", "--nproc"),
    (2, "plan --model {tiny} --for finetune", "train", "eval"),
]


class Mistakes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        os.environ["XDG_CACHE_HOME"] = str(cls.dir / "cache")
        make(cls.dir)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def fill(self, text):
        return text.format(d=self.dir, tiny=TINY, other=ASSETS / "models/tiny-phi3", new=self.dir / f"new-{abs(hash(text))}")

    def ask(self, line, **options):
        return subprocess.run([HONE, *shlex.split(self.fill(line))], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
                              **options)

    def wrong(self, result, code, words):
        """What is wrong with an answer, or None. Two commands run side by side, and may be about the same rows."""
        lines = [line for line in result.stderr.splitlines()
                 if not line.startswith("device ") and "waiting for another process that encodes the same data" not in line]
        if result.returncode != code:
            return f"exit code {result.returncode}, not {code}"
        if len(lines) != 1 or not lines[0].startswith("hone: "):
            return f"{len(lines)} lines"
        lacking = [word for word in map(self.fill, words) if word not in lines[0]]
        return f"without {lacking}" if lacking else None

    def test_every_mistake_is_told_with_its_remedy(self):
        self.assertGreaterEqual(len(TABLE), 120)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = pool.map(lambda row: self.ask(row[1]), TABLE)
            found = [(self.wrong(result, row[0], row[2:]), row[1], result.stdout + result.stderr) for row, result in zip(TABLE, results)]
        bad = [f"hone {line}: {wrong}\n    {said}" for wrong, line, said in found if wrong]
        self.assertFalse(bad, "\n" + "\n".join(bad) + f"\n{len(bad)} of {len(TABLE)}")
        if "--print" in sys.argv:
            for _, line, said in found:
                print(f"$ hone {line}\n{said}", end="")

    def test_what_may_not_be_read_is_reported(self):
        """As another user, since root may read all."""
        closed, theirs = self.dir / "closed", self.dir / "theirs"
        shutil.copytree(TINY, closed / "model")
        shutil.copytree(TINY, self.dir / "open")
        for path in (self.dir / "open").iterdir():
            path.chmod(0o644)
        (closed / "model/config.json").chmod(0)
        theirs.mkdir()
        theirs.chmod(0o777)
        self.dir.chmod(0o755)
        user = dict(user=65534, group=65534, extra_groups=[]) if os.geteuid() == 0 else {}
        user["env"] = {**os.environ, "XDG_CACHE_HOME": str(theirs)}
        try:
            subprocess.run([HONE, "--version"], check=True, capture_output=True, **user)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("another user may not run this program")

        def denied(line, what):
            result = self.ask(line, **user)
            self.assertIsNone(self.wrong(result, 3, [what, "Permission denied", "chmod"]), result.stderr)

        denied("plan --model {d}/closed/model", "config.json")
        closed.chmod(0)
        denied("plan --model {d}/closed", "closed")
        denied("plan --model {d}/closed/model", "closed/model")
        denied("train --model {d}/open --data {d}/chats.jsonl --output {d}/closed/out", "closed/out")
        (self.dir / "one.jsonl").chmod(0)
        denied("eval --model {d}/open --data {d}/one.jsonl", "one.jsonl")
        closed.chmod(0o755)


main(Mistakes, Mistakes)
