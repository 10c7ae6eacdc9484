#!/usr/bin/env python3
"""Which base is good enough to train on: the validation loss of a model in each type, before and after some steps of LoRA.

    bases.py HONE MODEL_DIR TRAIN.jsonl VALID.jsonl WORK [--steps 200] [--chats 8] [--rows 0] [--longest 0]
             [--types bf16,nf4,q8_0,...] [--threads 0]

bf16 is the directory itself, nf4 the same with --load-in-4bit and fp8 with --load-in-fp8. The others are files of llama.cpp's quantiser, made from a bfloat16
file that hone writes, with its own fallbacks where rows are no multiple of 256. Prints a Markdown table, a line as soon as it is
known. A step has --chats rows; --longest leaves out rows of more characters, and --rows all but the first of VALID.
"""
import argparse
import json
import os
import pathlib
import subprocess

FTYPES = {"q8_0": "MOSTLY_Q8_0", "q6_k": "MOSTLY_Q6_K", "q5_k": "MOSTLY_Q5_K_M", "q5_1": "MOSTLY_Q5_1", "q5_0": "MOSTLY_Q5_0",
          "q4_k": "MOSTLY_Q4_K_M", "q4_1": "MOSTLY_Q4_1", "q4_0": "MOSTLY_Q4_0", "iq4_xs": "MOSTLY_IQ4_XS",
          "iq4_nl": "MOSTLY_IQ4_NL", "q3_k": "MOSTLY_Q3_K_M", "q2_k": "MOSTLY_Q2_K"}


AT_LOADING = {"bf16": [], "nf4": ["--load-in-4bit"], "fp8": ["--load-in-fp8"]}


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {done.returncode}: {done.stderr}")
    return done.stdout


def make(args, kind):
    """The path of the model in this type."""
    if kind in AT_LOADING:
        return args.model
    import llama_cpp
    whole, path = args.work / "bf16.gguf", args.work / (kind + ".gguf")
    if not whole.exists():
        run(args.hone, "quantize", "--model", args.model, "--output", whole, "--type", "bf16")
    if not path.exists():
        options = llama_cpp.llama_model_quantize_default_params()
        options.ftype = getattr(llama_cpp, "LLAMA_FTYPE_" + FTYPES[kind])
        options.nthread = args.threads
        if llama_cpp.llama_model_quantize(os.fsencode(whole), os.fsencode(path), options):
            raise SystemExit(f"{path}: llama.cpp cannot quantise")
    return path


def loss(args, path, kind, adapter=None):
    bits = AT_LOADING.get(kind, [])
    more = ["--adapter", adapter] if adapter else []
    return json.loads(run(args.hone, "eval", "--model", path, "--data", args.valid, "--json", "--threads", args.threads, *bits,
                          *more))["loss"]


def bits_of(args, path, kind):
    bits = AT_LOADING.get(kind, [])
    plan = json.loads(run(args.hone, "plan", "--model", path, "--json", *bits))
    return plan["bits_per_weight"]


def choose(args, path, most):
    """A copy of the file with the rows that are not too long, at most so many."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines(True) if not args.longest or len(line) <= args.longest]
    copy = args.work / path.name
    copy.write_text("".join(lines[:most or None]), encoding="utf-8")
    return copy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("hone", "model", "train", "valid", "work"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--longest", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--types", default="bf16,fp8,nf4," + ",".join(FTYPES))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.train = choose(args, args.train, 0)
    args.valid = choose(args, args.valid, args.rows)
    print(f"| base | bits a weight | loss before | loss after {args.steps} steps |\n|---|---|---|---|", flush=True)
    for kind in args.types.split(","):
        path, out = make(args, kind), args.work / ("adapter-" + kind)
        before, after = loss(args, path, kind), None
        if args.steps:
            run(args.hone, "train", "--model", path, "--data", args.train, "--output", out, "--max-steps", args.steps,
                "--per-device-train-batch-size", args.chats, "--gradient-accumulation-steps", 1, "--threads", args.threads,
                *AT_LOADING.get(kind, []))
            after = loss(args, path, kind, out)
        print(f"| {kind} | {bits_of(args, path, kind):.1f} | {before:.4f} | {after:.4f} |" if args.steps else
              f"| {kind} | {bits_of(args, path, kind):.1f} | {before:.4f} | |", flush=True)


main()
