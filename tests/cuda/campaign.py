#!/usr/bin/env python3
"""The CUDA device on the strict simulator: every op at every target, and ops and whole steps in guard mode.

    campaign.py HONE OPS ASSETS DATA [--targets 7.5,8.0,8.9,9.0,12.0] [--guard] [--modes forward,gradient (or none of them)] [--op OP]

--targets runs the cases of the ops (in pairs of sizes) on devices of these compute capabilities: kernels are compiled for each, and
differ between them. --guard gives every value an allocation of its own that is not filled (src/tensor/apart.h) and has the simulator
look for reads of what was never written, of any size, and for two blocks that touch the same bytes (tools/cudasim/shadow.h): the ops
must be right, and steps of LoRA, QLoRA and full training must have the bytes of those in the usual blocks. Without either, both.

Seen to fail with LoRA's B left to memory that is zero by itself (src/models/lora.c): "which was never written".
"""
import argparse
import os
import pathlib
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
        return done.returncode == 0

    def ops(self, name, **environment):
        for mode in filter(None, self.args.modes.split(",")):
            self.run(f"{name} {mode}", [self.args.ops, mode, "--device", "cuda", "--pairs", *([self.args.op] if self.args.op else [])], **environment)

    def steps(self, folder):
        rows = (pathlib.Path(self.args.data) / "train.jsonl").read_text(encoding="utf-8").splitlines()
        data = folder / "chats.jsonl"
        data.write_text("\n".join(sorted(rows, key=len)[:24]) + "\n", encoding="utf-8")
        for name, words in RUNS.items():
            outs = [folder / f"{name}-{kind}" for kind in ("usual", "guard")]
            for out, environment in zip(outs, ({}, GUARD)):
                dtype = [] if "--dtype" in words else ["--dtype", "float32"]
                self.run(f"{out.name}", [self.args.hone, "train", "--model", self.args.assets / "models/tiny-llama", "--data", data, "--output",
                         out, "--device", "cuda", "--max-steps", 3, "--per-device-train-batch-size", 2, "--gradient-accumulation-steps", 2,
                         *dtype, *words], **environment)
            files = [sorted(out.glob("*.safetensors")) for out in outs]
            same = files[0] and [f.name for f in files[0]] == [f.name for f in files[1]] and \
                all(a.read_bytes() == b.read_bytes() for a, b in zip(*files))
            print(f"{name}: {'the same bytes' if same else 'OTHER BYTES'}", flush=True)
            if not same:
                self.failed.append(f"{name}: bytes")


def main():
    parser = argparse.ArgumentParser()
    for name in ("hone", "ops", "assets", "data"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--targets")
    parser.add_argument("--guard", action="store_true")
    parser.add_argument("--modes", default="forward,gradient")
    parser.add_argument("--op")
    args = parser.parse_args()
    both = not args.targets and not args.guard
    campaign = Campaign(args)
    for target in (TARGETS if both else args.targets or "").split(","):
        if target:
            campaign.ops(f"compute capability {target}", CUDASIM_CC=target)
    if args.guard or both:
        with tempfile.TemporaryDirectory() as folder:
            campaign.steps(pathlib.Path(folder))
        campaign.ops("guard", **GUARD)
    print(f"{campaign.count} runs, {len(campaign.failed)} failed" + (": " + ", ".join(campaign.failed) if campaign.failed else ""))
    sys.exit(bool(campaign.failed))


if __name__ == "__main__":
    main()
