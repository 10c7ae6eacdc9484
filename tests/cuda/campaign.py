#!/usr/bin/env python3
"""The CUDA device on the strict simulator: every op at every target, and ops and whole steps in guard mode.

    campaign.py HONE OPS ASSETS DATA [--streamed] [--targets 7.5,8.0,8.9,9.0,12.0] [--guard] [--modes forward,gradient (or none of them)] [--op OP]

--targets runs the cases of the ops (in pairs of sizes) on devices of these compute capabilities: kernels are compiled for each, and
differ between them. --guard gives every value an allocation of its own that is not filled (src/tensor/guard_alloc.h) and has the simulator
look for reads of what was never written, of any size, and for two blocks that touch the same bytes (tools/cudasim/shadow.h): the ops
must be right, and steps of LoRA, QLoRA and full training must have the bytes of those in the usual blocks. Steps whose layers are
copied out of host memory, on a tiny-llama of six layers (dense, in NF4, in FP8, and in a GGUF file's Q4_K), must have the bytes of
those whose layers stay too, in graphs and without, by one process and by two that send gradients meanwhile, and take less of the
card: with --guard --streamed in place of the others; and so must steps whose activations wait in host memory, of LoRA, QLoRA and full
training, with and without such layers. --guard with --targets runs only the ops, in guard mode at these. Without any of these
options, all.

Seen to fail with LoRA's B left to memory that is zero by itself (src/models/lora.c): "which was never written".
"""
import argparse
import array
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

GUARD = {"HONE_GUARD": "1", "CUDASIM_UNWRITTEN": "1", "CUDASIM_BLOCKS": "1"}
TARGETS = "7.5,8.0,8.9,9.0,12.0"
RUNS = {
    "lora": ["--lora-dropout", "0.1"],
    "lora bfloat16": ["--dtype", "bfloat16", "--recompute", "full"],
    "qlora": ["--finetuning-type", "qlora"],
    "qlora expanded": ["--finetuning-type", "qlora", "--micro-batch-tokens", "128"],
    "fp8": ["--load-in-fp8", "--dtype", "bfloat16"],
    "full": ["--finetuning-type", "full", "--learning-rate", "1e-4"],
}
STREAMED = {
    "streamed lora bfloat16": ["--dtype", "bfloat16", "--recompute", "full"],
    "streamed qlora": ["--finetuning-type", "qlora", "--dtype", "float32"],
    "streamed fp8": ["--load-in-fp8", "--dtype", "bfloat16"],
    "streamed q4_k": ["--dtype", "bfloat16"],
    "streamed ranks": ["--dtype", "bfloat16", "--nproc", "2"],
    "streamed ranks sharding": ["--dtype", "bfloat16", "--nproc", "2", "--shard", "gradients"],
}
KINDS = {  # of a streamed run: what is different, and its environment
    "all": (["--resident-layers", "all"], {}),
    "graph": (["--resident-layers", "2", "--cuda-graph", "on"], {}),
    "launched": (["--resident-layers", "0", "--cuda-graph", "off"], {}),
    "guard": (["--resident-layers", "2", "--cuda-graph", "on"], GUARD),
}
RECOMPUTING = ["--recompute", "full", "--resident-layers"]
OFFLOADED = {
    "offloaded lora bfloat16": ["--dtype", "bfloat16"],
    "offloaded qlora": ["--finetuning-type", "qlora", "--dtype", "float32"],
    "offloaded full": ["--finetuning-type", "full", "--dtype", "bfloat16"],
    "offloaded ranks": ["--dtype", "bfloat16", "--nproc", "2"],
}
OFFLOADED_KINDS = {  # of a run whose activations wait in host memory
    "all": ([*RECOMPUTING, "all", "--activation-offloading", "off"], {}),
    "graph": ([*RECOMPUTING, "all", "--activation-offloading", "on", "--cuda-graph", "on"], {}),
    "launched": ([*RECOMPUTING, "2", "--activation-offloading", "on", "--cuda-graph", "off"], {}),
    "guard": ([*RECOMPUTING, "2", "--activation-offloading", "on", "--cuda-graph", "on"], GUARD),
}
LAYERS, BLOCK = 6, 256  # BLOCK: of K-quants


def numbers(name, shape):
    """Of a tensor that the model has in another shape: a norm's ones, or random numbers."""
    draw = random.Random(name).uniform
    return array.array("f", (draw(-0.1, 0.1) if len(shape) > 1 else 1 for _ in range(math.prod(shape)))).tobytes()


def deepen(model, to, channels=0):
    """A copy of tiny-llama with more layers, each with numbers of its own, and with rows of so many channels if that is not 0."""
    shutil.copytree(model, to)
    path = to / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    wider = {32: channels // 2, 64: channels, 160: channels} if channels else {}
    tensors = {}
    for name, row in header.items():
        shape, (begin, end) = [wider.get(n, n) for n in row["shape"]], row["data_offsets"]
        part = numbers(name, shape) if channels else body[begin:end]
        tensors[name] = (shape, part)
        if ".layers.1." in name:
            for layer in range(2, LAYERS):
                turned = 4 * layer * 7 % len(part)              # whole float32 numbers
                tensors[name.replace(".layers.1.", f".layers.{layer}.")] = (shape, part[turned:] + part[:turned])
    out, at = {}, 0
    for name, (shape, part) in tensors.items():
        out[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(part)]}
        at += len(part)
    text = json.dumps(out).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(part for _, part in tensors.values()))
    config = json.loads((to / "config.json").read_text())
    config["num_hidden_layers"] = LAYERS
    if channels:
        config.update(hidden_size=channels, intermediate_size=channels, head_dim=channels // config["num_attention_heads"])
    (to / "config.json").write_text(json.dumps(config))
    return to


class Campaign:
    def __init__(self, args):
        self.args, self.failed, self.count = args, [], 0

    def run(self, name, words, **environment):
        done = subprocess.run([str(w) for w in words], env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        faults = [line for line in done.stderr.splitlines() if line.startswith("cudasim: ")]
        self.count += 1
        lines = faults[:3] if faults else (done.stdout + done.stderr).strip().splitlines()[-2:]
        if done.returncode or faults:
            self.failed.append(name)
        print(f"{name:32} {'FAILED' if done.returncode or faults else 'ok'}\n    " + "\n    ".join(lines), flush=True)
        return done.stdout if done.returncode == 0 else None

    def ops(self, name, **environment):
        for mode in filter(None, self.args.modes.split(",")):
            self.run(f"{name} {mode}", [self.args.ops, mode, "--device", "cuda", "--pairs", *([self.args.op] if self.args.op else [])], **environment)

    def chats(self, folder):
        rows = (pathlib.Path(self.args.data) / "train.jsonl").read_text(encoding="utf-8").splitlines()
        data = folder / "chats.jsonl"
        data.write_text("\n".join(sorted(rows, key=len)[:24]) + "\n", encoding="utf-8")
        return data

    def train(self, out, model, data, words, environment):
        return self.run(out.name, [self.args.hone, "train", "--model", model, "--data", data, "--output", out, "--device", "cuda", "--max-steps",
                        3, "--per-device-train-batch-size", 2, "--gradient-accumulation-steps", 2, *words], **environment)

    def compare(self, name, outs):
        files = [sorted(out.glob("*.safetensors")) for out in outs]
        same = files[0] and all([f.name for f in files[0]] == [f.name for f in more] and
                                all(a.read_bytes() == b.read_bytes() for a, b in zip(files[0], more)) for more in files[1:])
        losses = [[json.loads(line).get("loss") for line in (out / "metrics.jsonl").read_text().splitlines()] if
                  (out / "metrics.jsonl").exists() else [] for out in outs]
        same = same and all(row == losses[0] for row in losses)
        print(f"{name}: {'the same bytes and losses' if same else 'OTHER BYTES'}", flush=True)
        if not same:
            self.failed.append(f"{name}: bytes")

    def streamed(self, folder):
        data, tiny = self.chats(folder), self.args.assets / "models/tiny-llama"
        models = {"usual": deepen(tiny, folder / "deep")}
        wide, models["q4_k"] = deepen(tiny, folder / "wide", BLOCK), folder / "wide.gguf"
        self.run("wide.gguf", [self.args.hone, "quantize", "--model", wide, "--output", models["q4_k"], "--type", "q4_k_m"])
        for name, words in {**STREAMED, **OFFLOADED}.items():
            outs, taken, model = [], {}, models.get(name.split()[1], models["usual"])
            for kind, (more, environment) in (OFFLOADED_KINDS if name in OFFLOADED else KINDS).items():
                outs.append(folder / f"{name} {kind}")
                text = self.train(outs[-1], model, data, [*words, *more, "--json"], environment)
                taken[kind] = json.loads(text)["allocated_bytes"] if text else 0
            print(f"{name}: bytes of the card {taken}", flush=True)
            self.compare(name, outs)
            fewer = taken["launched"] < taken["graph"] or (taken["launched"] == taken["graph"] and "full" in words)  # which has no frozen weights
            if not fewer or not 0 < taken["graph"] < taken["all"]:
                self.failed.append(f"{name}: memory")

    def steps(self, folder):
        data = self.chats(folder)
        for name, words in RUNS.items():
            outs = [folder / f"{name}-{kind}" for kind in ("usual", "guard")]
            for out, environment in zip(outs, ({}, GUARD)):
                dtype = [] if "--dtype" in words else ["--dtype", "float32"]
                self.train(out, self.args.assets / "models/tiny-llama", data, [*dtype, *words], environment)
            self.compare(name, outs)


def main():
    parser = argparse.ArgumentParser()
    for name in ("hone", "ops", "assets", "data"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--targets")
    parser.add_argument("--guard", action="store_true")
    parser.add_argument("--modes", default="forward,gradient")
    parser.add_argument("--op")
    parser.add_argument("--streamed", action="store_true", help="of the steps only those")
    args = parser.parse_args()
    both = not args.targets and not args.guard and not args.streamed
    campaign = Campaign(args)
    kind, more = ("guard, ", GUARD) if args.guard and args.targets else ("", {})
    for target in filter(None, (TARGETS if both else args.targets or "").split(",")):
        campaign.ops(f"{kind}compute capability {target}", CUDASIM_CC=target, **more)
    if (args.guard or args.streamed or both) and not kind:
        with tempfile.TemporaryDirectory() as folder:
            if not args.streamed:
                campaign.steps(pathlib.Path(folder))
            if args.streamed or both:
                campaign.streamed(pathlib.Path(folder))
        campaign.ops("guard", **GUARD)
    print(f"{campaign.count} runs, {len(campaign.failed)} failed" + (": " + ", ".join(campaign.failed) if campaign.failed else ""))
    sys.exit(bool(campaign.failed))


if __name__ == "__main__":
    main()
