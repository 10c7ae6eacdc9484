"""hone compared with PyTorch with PEFT, TRL and llama.cpp, on the same two cores: runs in turn, medians, and a report.

    compare.py HONE ASSETS DATA [--only lora-bf16,decode-bf16] [--repeats 5] [--steps 3] [--out docs] [--work DIR] [--draw]

Some workloads have no peer: `engine-NAME` compares a step with its own matmuls, and `growth` sequences of 1,024 to 16,384
tokens. `path-NAME` limits both sides to a kind of instructions (src/base/isa.def), and keeps which machine it was on.

ASSETS/venv has the other programs, ASSETS/models/smollm2 the model; DATA is tests/data/debian-chat. The sides alternate (A B,
B A, A B …), each run is a process of its own, and a ratio is the median of the rounds' ratios, so that other load on the
machine, which both meet, changes it little. Peak memory is the system's figure for the process (ru_maxrss). OUT/speed.json keeps
what each workload measured last; OUT/speed.md and OUT/speed.svg are drawn from it, and --draw does only that.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

from plot_loss import GRID, INK, QUIET, TRAIN, VALID, svg

PEER = pathlib.Path(__file__).with_name("compare_peer.py")
CORES = 2
WARM = 2
PROMPT = "<|im_start|>user\nWhat is the Debian package jq for? Explain at length.<|im_end|>\n<|im_start|>assistant\n"
ASK = "What is the Debian package jq for? Explain at length."
NEW = 128
CHATS = 400
WIDE = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64}
LENGTHS, LAYERS = (1024, 2048, 4096, 8192, 16384), 6
# name: (what it is, options of hone bench, tokens of a sequence)
ENGINE = {
    "lora-bf16": ("LoRA, bfloat16, 4 x 256", ("--dtype", "bfloat16"), 256),
    "lora-f32": ("LoRA, float32, 4 x 256", ("--dtype", "float32"), 256),
    "qlora": ("QLoRA, NF4, 4 x 256", ("--dtype", "bfloat16", "--finetuning-type", "qlora"), 256),
    "full-bf16": ("all weights, bfloat16, 4 x 256", ("--dtype", "bfloat16", "--finetuning-type", "full"), 256),
    "long-bf16": ("LoRA, bfloat16, 1 x 8192", ("--dtype", "bfloat16"), 8192),
}
# HONE_ISA: (what it is, the type of the run, how PyTorch and its libraries are limited to the same)
PATHS = {
    "avx2": ("AVX2", "float32", {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
    "avx512": ("AVX-512", "float32",
               {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "MKL_ENABLE_INSTRUCTIONS": "AVX512"}),
    "avx512_bf16": ("AVX-512 with bfloat16", "bfloat16",
                    {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E3"}),
    "amx": ("AMX", "bfloat16", {}),
}
LIBRARIES = ("torch", "transformers", "peft", "trl", "bitsandbytes", "llama-cpp-python")


class Failed(Exception):
    pass


def lines_of(master):
    """What comes to a terminal, or through a pipe."""
    with os.fdopen(master, encoding="utf-8", errors="replace") as file:
        try:
            yield from file
        except OSError:                                 # how Linux says that no process writes to a terminal any more
            pass


def run(command, until=None, terminal=False, limits=()):
    """Runs a process. Returns its standard output, its standard error (a terminal, if it shall be one), the seconds to its end
    or to the first line of standard error that `until` matches, and its peak memory in bytes."""
    with tempfile.TemporaryFile("w+") as out:
        begin, seen, said = time.monotonic(), None, []
        reader, writer = os.openpty() if terminal else os.pipe()
        child = subprocess.Popen(list(map(str, command)), stdout=out, stderr=writer,
                                 env={**os.environ, "OMP_NUM_THREADS": str(CORES), **dict(limits)})
        os.close(writer)
        for line in lines_of(reader):
            said.append(line)
            if until and seen is None and re.match(until, line):
                seen = time.monotonic() - begin
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        if child.returncode or (until and seen is None):
            raise Failed(f"{' '.join(map(str, command))}\nended with {child.returncode}: {''.join(said)[-2000:]}")
        out.seek(0)
        return out.read(), "".join(said), seen if until else seconds, usage.ru_maxrss * 1024


class Bench:
    """What all workloads use: paths, and the programs as functions that return a figure and a peak."""

    def __init__(self, args):
        self.args, self.hone, self.work = args, args.hone, args.work
        self.python = args.assets / "venv" / "bin" / "python"
        self.model = args.assets / "models" / "smollm2"
        self.hone_limits, self.peer_limits = {}, {}

    def hone_steps(self, model, *options, **job):
        """Tokens a second of `hone bench`."""
        text, _, _, peak = run([self.hone, "bench", "--json", "--model", model, "--device", "cpu", "--max-steps", self.args.steps,
                             "--threads", CORES, "--per-device-train-batch-size", job["batch"], "--max-length", job["length"],
                             "--dtype", job.get("dtype", "bfloat16"), *options], limits=self.hone_limits)
        return json.loads(text)["tokens_per_second"], peak

    def peer(self, until=None, **job):
        text, _, seconds, peak = run([self.python, PEER, json.dumps({"threads": CORES, **job}, default=str)], until,
                                  limits=self.peer_limits)
        return json.loads(text.splitlines()[-1]), seconds, peak

    def peft_steps(self, method="lora", dtype="bfloat16", batch=4, length=256):
        done, _, peak = self.peer(kind="train", model=self.model, method=method, dtype=dtype, batch=batch, length=length,
                                  warm=WARM, steps=self.args.steps)
        return batch * length / statistics.mean(done["seconds"]), peak

    def gguf(self, kind):
        """SmolLM2 as a GGUF file: that of the assets, or in bfloat16, made once by hone."""
        path = self.work / "smollm2-bf16.gguf"
        if kind == "q4_1":
            return self.args.assets / "models" / "smollm2.q4_1.gguf"
        if not path.exists():
            run([self.hone, "quantize", "--model", self.model, "--output", path, "--type", "bf16"])
        return path

    def wide(self, kind):
        """A random model of 2048 channels and 4 layers, made once: its directory in bfloat16, or that as q4_k_m."""
        folder, path = self.work / "wide", self.work / "wide-q4_k_m.gguf"
        if not folder.exists():
            part = self.work / "wide.part"
            run([self.python, "-c", "import json, sys, torch; from transformers import AutoConfig, AutoModelForCausalLM; "
                 "torch.manual_seed(1); c = AutoConfig.from_pretrained(sys.argv[1], **json.loads(sys.argv[3])); "
                 "AutoModelForCausalLM.from_config(c).to(torch.bfloat16).save_pretrained(sys.argv[2])",
                 self.model, part, json.dumps(WIDE)])
            for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
                if (self.model / name).exists():
                    shutil.copy(self.model / name, part)
            part.rename(folder)
        if kind == "q4_k_m" and not path.exists():
            run([self.hone, "quantize", "--model", folder, "--output", path, "--type", "q4_k_m"])
        return path if kind == "q4_k_m" else folder

    def chats(self, count):
        path = self.work / f"chats-{count}.jsonl"
        with open(self.args.data / "train.jsonl", encoding="utf-8") as file:
            path.write_text("".join(line for _, line in zip(range(count), file)), encoding="utf-8")
        return path

    def hone_train(self, rows, until, *options):
        """Seconds of a run whose tokens are not cached."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            out = pathlib.Path(folder, "out")
            _, _, seconds, peak = run([self.hone, "train", "--model", self.model, "--data", rows, "--output", out, "--device",
                                       "cpu", "--cache-dir", pathlib.Path(folder, "cache"), "--per-device-train-batch-size", 4,
                                       "--dtype", "bfloat16", "--threads", CORES, "--save-steps", 0, *options], until)
            if not (out / "adapter_model.safetensors").exists():
                raise Failed("hone train left no adapter")
            return seconds, peak

    def trl_train(self, rows, until=None, **job):
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            _, seconds, peak = self.peer(until, kind="sft", model=self.model, method="lora", dtype="bfloat16", batch=4, data=rows,
                                         output=folder, **job)
            return seconds, peak

    def hone_decode(self, model):
        """hone tells its speed only on a terminal."""
        _, said, _, peak = run([self.hone, "generate", "--model", model, "--device", "cpu", "--threads", CORES, "--dtype",
                                "bfloat16", "--prompt", ASK, "--max-new-tokens", NEW], terminal=True)
        rate = re.search(r"new at ([\d.]+) tok/s", said)
        if not rate:
            raise Failed(f"hone generate reported no speed: {said}")
        return float(rate[1]), peak

    def llama_decode(self, model):
        done, _, peak = self.peer(kind="decode", model=model, prompt=PROMPT, tokens=NEW)
        return done["tokens_per_second"], peak

    def path(self, isa):
        """LoRA steps of both sides with one kind of instructions, and the share of the step's time that only its matmuls take."""
        _, dtype, limits = PATHS[isa]
        self.hone_limits, self.peer_limits = {"HONE_ISA": isa}, limits
        try:
            rounds = measure(f"path-{isa}", self.args.repeats, True, lambda b: b.hone_steps(b.model, batch=4, length=256, dtype=dtype),
                             lambda b: b.peft_steps(dtype=dtype), self)
            return {"machine": machine(), "rounds": rounds, "engine": self.engine("lora-bf16" if dtype == "bfloat16" else "lora-f32")}
        finally:
            self.hone_limits, self.peer_limits = {}, {}

    def engine(self, name):
        """The time that only the matmuls of a step take, as a part of the step's."""
        options, length = ENGINE[name][1:]
        text, _, _, _ = run([self.hone, "bench", "--json", "--profile", "--model", self.model, "--device", "cpu", "--max-steps",
                             self.args.repeats, "--threads", CORES, "--per-device-train-batch-size", 1024 // length or 1,
                             "--max-length", length, *options], limits=self.hone_limits)
        profile = json.loads(text)["profile"]
        return {key: profile[key] for key in ("rounds", "step_seconds", "bare_seconds", "ratio")}

    def growth(self, length):
        """A step of one sequence of so many tokens, of the model with a wider window and fewer layers: seconds, those of
        attention's ops among them, and the process's peak."""
        folder = self.work / "window"
        if not folder.exists():
            shutil.copytree(self.model, folder)
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            config.update(max_position_embeddings=max(LENGTHS), num_hidden_layers=LAYERS)
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        text, _, _, peak = run([self.hone, "bench", "--json", "--profile", "--model", folder, "--device", "cpu", "--max-steps", 3,
                                "--threads", CORES, "--per-device-train-batch-size", 1, "--max-length", length, "--dtype", "bfloat16"])
        profile = json.loads(text)["profile"]
        attention = sum(op["seconds"] for op in profile["ops"] if op["op"].startswith("attention"))
        return {"tokens": length, "seconds": profile["ops_seconds"], "attention": attention, "peak": peak}

    def with_busy(self, measure):
        """A program's speed next to one busy loop, as a part of its speed just before."""
        idle, _ = measure()
        loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            busy, peak = measure()
        finally:
            loop.kill()
            loop.wait()
        return busy / idle, peak


# name: (what it is, unit, more is better, hone's name, the other's name, hone, the other)
WORKLOADS = {
    "lora-bf16": ("LoRA, bfloat16, 4 x 256", "tok/s", True, "hone", "PEFT",
                  lambda b: b.hone_steps(b.model, batch=4, length=256), lambda b: b.peft_steps()),
    "lora-f32": ("LoRA, float32, 4 x 256", "tok/s", True, "hone", "PEFT",
                 lambda b: b.hone_steps(b.model, batch=4, length=256, dtype="float32"), lambda b: b.peft_steps(dtype="float32")),
    "qlora": ("QLoRA, NF4, 4 x 256", "tok/s", True, "hone", "PEFT + bitsandbytes",
              lambda b: b.hone_steps(b.model, "--finetuning-type", "qlora", batch=4, length=256),
              lambda b: b.peft_steps(method="qlora")),
    "full-bf16": ("all weights, bfloat16, 4 x 256", "tok/s", True, "hone", "PyTorch",
                  lambda b: b.hone_steps(b.model, "--finetuning-type", "full", batch=4, length=256),
                  lambda b: b.peft_steps(method="full")),
    "long-bf16": ("LoRA, bfloat16, 1 x 8192", "tok/s", True, "hone", "PEFT",
                  lambda b: b.hone_steps(b.model, batch=1, length=8192), lambda b: b.peft_steps(batch=1, length=8192)),
    "q4_k": ("LoRA on Q4_K, 2048 wide, 4 x 256", "tok/s", True, "hone on Q4_K", "hone on bfloat16",
             lambda b: b.hone_steps(b.wide("q4_k_m"), batch=4, length=256),
             lambda b: b.hone_steps(b.wide("bf16"), batch=4, length=256)),
    "chats": (f"one epoch of {CHATS} chats, start to adapter", "s", False, "hone", "TRL",
              lambda b: b.hone_train(b.chats(CHATS), None), lambda b: b.trl_train(b.chats(CHATS))),
    "first-step": ("start to first step", "s", False, "hone", "TRL",
                   lambda b: b.hone_train(b.chats(CHATS), "step 1/", "--max-steps", 1),
                   lambda b: b.trl_train(b.chats(CHATS), "step 1", max_steps=1)),
    "decode-bf16": ("decoding, bfloat16", "tok/s", True, "hone", "llama.cpp",
                    lambda b: b.hone_decode(b.model), lambda b: b.llama_decode(b.gguf("bf16"))),
    "decode-q4_1": ("decoding, Q4_1", "tok/s", True, "hone", "llama.cpp",
                    lambda b: b.hone_decode(b.gguf("q4_1")), lambda b: b.llama_decode(b.gguf("q4_1"))),
    "busy": ("LoRA, bfloat16, next to one busy loop", "of idle speed", True, "hone", "PEFT",
             lambda b: b.with_busy(lambda: b.hone_steps(b.model, batch=4, length=256)),
             lambda b: b.with_busy(b.peft_steps)),
}
# Those without a peer.
ALONE = {**{f"engine-{name}": lambda b, name=name: b.engine(name) for name in ENGINE},
         **{f"path-{isa}": lambda b, isa=isa: b.path(isa) for isa in PATHS},
         "growth": lambda b: [b.growth(length) for length in LENGTHS]}


def measure(name, repeats, more_is_better, ours, theirs, bench):
    """The rounds of a workload; the sides change places from round to round."""
    rounds = []
    for i in range(repeats):
        sides = {}
        for key, side in (("hone", ours), ("other", theirs))[::1 - 2 * (i % 2)]:
            sides[key], sides[key + "_peak"] = side(bench)
        sides["ratio"] = sides["hone"] / sides["other"] if more_is_better else sides["other"] / sides["hone"]
        rounds.append(sides)
        print(f"{name} {i + 1}/{repeats}: hone {sides['hone']:.4g}, other {sides['other']:.4g}, ratio {sides['ratio']:.3f}",
              file=sys.stderr, flush=True)
    return rounds


def machine():
    """The name of many virtual ones says little: their flags tell the kinds apart."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    processor, flags = re.search(r"model name\s*: (.*)", text), set(re.search(r"flags\s*: (.*)", text)[1].split())
    units = next((name for flag, name in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512 with bfloat16"), ("avx512vl", "AVX-512"),
                                          ("avx2", "AVX2")) if flag in flags), "SSE2")
    return f"{processor[1] if processor else 'an unknown processor'} with {units}"


def versions(python):
    code = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    return json.loads(run([python, "-c", code, *LIBRARIES])[0])


def middle(rounds, key):
    return statistics.median(one[key] for one in rounds)


def figure(value, unit):
    return f"{value:.0%}" if unit == "of idle speed" else f"{value:.2f} s" if unit == "s" else f"{value:.0f} {unit}"


def spread(rounds):
    ratios = [one["ratio"] for one in rounds]
    return f"{min(ratios):.2f}–{max(ratios):.2f}"


def prose(text, item=False):
    return textwrap.fill(text, 100, initial_indent="- " if item else "", subsequent_indent="  " if item else "")


def row(name, rounds):
    what, unit, _, ours, theirs, *_ = WORKLOADS[name]
    cells = (what, figure(middle(rounds, "hone"), unit) + ("" if ours == "hone" else f" ({ours})"),
             f"{figure(middle(rounds, 'other'), unit)} ({theirs})", f"**{middle(rounds, 'ratio'):.2f}** ({spread(rounds)})",
             f"{middle(rounds, 'hone_peak') / 1e9:.2f} GB, {middle(rounds, 'other_peak') / 1e9:.2f} GB")
    return f"| {' | '.join(cells)} |"


def report(results):
    """The page. A ratio above 1 says that hone is the faster."""
    measured = {name: results["workloads"][name] for name in WORKLOADS if name in results["workloads"]}
    loads, alone = [entry["load"] for entry in measured.values()], results.get("alone", {})
    return "\n".join([
        "<!-- Made by bench/compare.py: edit that file. -->", "# Speed", "",
        prose("hone compared with other programs on two cores, by `bench/compare.py`. The sides ran in turn; figures are medians of "
              f"at least {min(len(e['rounds']) for e in measured.values())} rounds. A ratio is the median of the rounds' ratios, with the "
              "lowest and the highest; above 1 hone is the faster. Memory is the process's peak, with the touched pages of mapped "
              "files."), "",
        "![how many times as fast as the other program](speed.svg)", "",
        "| workload | hone | the other | ratio | memory: hone, the other |", "|---|---|---|---|---|",
        *(row(name, entry["rounds"]) for name, entry in measured.items()), "",
        prose(f"{results['machine']}, {CORES} cores. The machine also had other load ({min(loads):.1f} to {max(loads):.1f}), so the "
              "ratios say more than the figures. Versions: "
              + ", ".join(f"{name} {version}" for name, version in results["versions"].items()) + "."), "",
        "What is compared:", "",
        prose("SmolLM2-135M-Instruct, from its published Q4_1 GGUF file, widened to bfloat16: the largest published model that hone has "
              "trained. LoRA with r = 16 on all linear layers, AdamW, clipping. Steps are windows of random tokens, all of them trained.",
              True),
        prose("PyTorch has sdpa, the adapter in the model's type and the fused AdamW. In bfloat16 it keeps no float32 copy of what "
              "it trains; hone does.", True),
        prose("TRL's SFTTrainer has batches of 4 chats and trains on the last answer only; hone trains on all answers, with no "
              "tokens cached.", True),
        prose(f"Decoding is {NEW} tokens after a short prompt, greedy, with the same number of threads.", True),
        *paths_report({isa: alone[f"path-{isa}"] for isa in PATHS if f"path-{isa}" in alone}),
        *engine_report({name: alone[f"engine-{name}"] for name in ENGINE if f"engine-{name}" in alone}),
        *(growth_report(alone["growth"]) if "growth" in alone else []), "", "## What limits it", "",
        *(prose(text, True) for text in LIMITS)]) + "\n"


def paths_report(paths):
    """Paths are measured on the machines that there are, so each row says which."""
    def line(isa, one):
        what, dtype, _ = PATHS[isa]
        rounds = one["rounds"]
        return (f"| {what} | {dtype} | {middle(rounds, 'hone'):.0f} tok/s | {middle(rounds, 'other'):.0f} tok/s | "
                f"**{middle(rounds, 'ratio'):.2f}** ({spread(rounds)}) | {one['engine']['ratio']:.2f} | "
                f"{middle(rounds, 'hone_peak') / 1e9:.2f} GB, {middle(rounds, 'other_peak') / 1e9:.2f} GB | {one['machine']} |")
    return ["", "## By instructions", "",
            prose("LoRA, 4 x 256, hone (`HONE_ISA`) and PEFT limited to the same instructions. *Matmuls*: the share of a step that its "
                  "matmuls take by themselves. Where a processor has no units for bfloat16, `--dtype auto` is float32, with the frozen "
                  "base as bfloat16."), "",
            "| instructions | type | hone | PEFT | ratio | matmuls | memory: hone, PEFT | measured on |", "|---|---|---|---|---|---|---|---|",
            *(line(isa, paths[isa]) for isa in PATHS if isa in paths)]


def engine_report(shares):
    return ["", "## A step and its matmuls", "",
            prose("A step's matmuls, attention's among them, by themselves through oneDNN (`hone bench --profile`): the limit of the "
                  "step's time."), "",
            "| workload | step | its matmuls | share |", "|---|---|---|---|",
            *(f"| {ENGINE[name][0]} | {one['step_seconds']:.3f} s | {one['bare_seconds']:.3f} s | **{one['ratio']:.2f}** |"
              for name, one in shares.items())]


LIMITS = (
    "LoRA: matmuls, which both sides run through oneDNN.",
    "Without AMX: float32 matmuls, on both sides near what the processor can add and multiply. In bfloat16 both sides have oneDNN's, "
    "which are slower than hone's in float32: there `--dtype float32` is faster, and takes more memory.",
    "Long sequences: attention, most of it vector work (exponentials, and probabilities split into two 16-bit parts so that they are "
    "not rounded).",
    "Chats: the ratio of a step, times what TRL computes on padding.",
    "Decoding in Q4_1: hone multiplies the weights by activations as they are; llama.cpp rounds those to 8 bits first, and its "
    "integer products are faster.",
    "Start: reading the weights and packing them for the matrix unit.",
)


def growth_report(rows):
    """Memory is linear if each doubling adds twice what the one before did."""
    def line(one, before):
        added = f"{(one['peak'] - before['peak']) / (one['tokens'] - before['tokens']) / 1e3:.0f} kB" if before else ""
        rest = one["seconds"] - one["attention"]
        return (f"| {one['tokens']:,} | {one['seconds']:.2f} s | {one['attention'] / one['seconds']:.0%} | "
                f"{one['tokens'] / rest:.0f} tok/s | {one['peak'] / 1e9:.2f} GB | {added} |")
    return ["", "## Longer sequences", "",
            prose(f"One sequence a step, {LAYERS} layers of the model, bfloat16. The speed without attention should not fall, and each "
                  "token should add the same memory."), "",
            "| tokens | ops | attention | speed without attention | memory | a token added |", "|---|---|---|---|---|---|",
            *(line(one, before) for one, before in zip(rows, [None, *rows]))]


def draw(results):
    """A bar for each ratio, from 1 outwards on a scale of doublings."""
    rows = [(WORKLOADS[name], middle(results["workloads"][name]["rounds"], "ratio")) for name in WORKLOADS
            if name in results["workloads"]]
    width, left, right, step, top = 720, 270, 60, 30, 52
    reach = max(1, math.ceil(max(abs(math.log2(ratio)) for _, ratio in rows)))
    unit = (width - left - right - 40) / (2 * reach)         # 40: for the number next to a bar that ends on the left
    middle_x, height = left + 40 + reach * unit, top + step * len(rows) + 22
    parts = [f'<text x="{left}" y="24" fill="{INK}" font-weight="600">how many times as fast as the other program</text>']
    for power in range(-reach, reach + 1):
        x = middle_x + power * unit
        parts.append(f'<path d="M{x:.1f} {top - 8}V{height - 18}" stroke="{QUIET if power == 0 else GRID}"/>')
        parts.append(f'<text x="{x:.1f}" y="{top - 13}" fill="{QUIET}" text-anchor="middle" font-size="11">'
                     f'{2.0 ** power:g}</text>')
    for i, ((what, _, _, _, theirs, *_), ratio) in enumerate(rows):
        y, end = top + step * i, middle_x + math.log2(ratio) * unit
        parts.append(f'<text x="{left - 12}" y="{y + 10}" fill="{INK}" text-anchor="end" font-size="12">{what}</text>')
        parts.append(f'<text x="{left - 12}" y="{y + 22}" fill="{QUIET}" text-anchor="end" font-size="10">'
                     f'against {theirs}</text>')
        parts.append(f'<rect x="{min(end, middle_x):.1f}" y="{y}" width="{max(abs(end - middle_x), 1):.1f}" height="16" rx="2" '
                     f'fill="{TRAIN if ratio >= 1 else VALID}"/>')
        side, anchor = (end + 6, "start") if ratio >= 1 else (end - 6, "end")
        parts.append(f'<text x="{side:.1f}" y="{y + 13}" fill="{INK}" text-anchor="{anchor}" font-size="12">{ratio:.2f}</text>')
    return svg("hone compared with other programs: ratios of speed", parts, width, height)


def write(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "speed.md").write_text(report(results), encoding="utf-8")
    (folder / "speed.svg").write_text(draw(results), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("hone", "assets", "data"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--only", default=",".join([*WORKLOADS, *ALONE]))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir(), "hone-compare"))
    parser.add_argument("--draw", action="store_true")
    args = parser.parse_args()
    names = args.only.split(",")
    unknown = [name for name in names if name not in WORKLOADS and name not in ALONE]
    if unknown:
        raise SystemExit(f"no workload {unknown[0]}: there are {', '.join([*WORKLOADS, *ALONE])}")
    kept = args.out / "speed.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {"workloads": {}}
    failed = []
    if not args.draw:
        args.work.mkdir(parents=True, exist_ok=True)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
        bench = Bench(args)
        results.update(machine=machine(), versions=versions(bench.python))
        for name in names:
            load = os.getloadavg()[0]
            try:
                if name in ALONE:
                    results.setdefault("alone", {})[name] = ALONE[name](bench)
                else:
                    _, _, more_is_better, *_, ours, theirs = WORKLOADS[name]
                    rounds = measure(name, args.repeats, more_is_better, ours, theirs, bench)
                    results["workloads"][name] = {"load": load, "nice": os.nice(0), "steps": args.steps, "rounds": rounds}
                write(args.out, results)
            except Failed as failure:                   # the others can be measured all the same
                failed.append(name)
                print(f"{name}: {failure}", file=sys.stderr, flush=True)
    if args.draw:
        write(args.out, results)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


main()
