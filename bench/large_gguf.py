#!/usr/bin/env python3
"""One LoRA step on a GGUF file of 8B shapes: how fast it opens, and whether it stays in the memory that the plan says.

    large_gguf.py HONE TOKENIZER_DIR WORK [--layers 32] [--length 64] [--threads 0]

Writes Llama 3.1 8B's shapes in Q4_K (4.5 GB with 32 layers) with random blocks, tensor after tensor, if WORK does not have the file
yet. Prints seconds to plan from it, the planned and the measured peak of the step.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import time

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "oracle"))
import gguf_make  # noqa: E402

CHANNELS, FORWARD, HEADS, KV_HEADS, VOCABULARY = 4096, 14336, 32, 8, 128256
ROW = {"attn_q": (4096, 4096), "attn_k": (1024, 4096), "attn_v": (1024, 4096), "attn_output": (4096, 4096),
       "ffn_gate": (14336, 4096), "ffn_up": (14336, 4096), "ffn_down": (4096, 14336)}


def shapes(layers):
    yield "token_embd", (VOCABULARY, CHANNELS)
    for layer in range(layers):
        yield from ((f"blk.{layer}.{name}", shape) for name, shape in ROW.items())
        yield from ((f"blk.{layer}.{name}", (CHANNELS,)) for name in ("attn_norm", "ffn_norm"))
    yield "output_norm", (CHANNELS,)
    yield "output", (VOCABULARY, CHANNELS)


def blocks(count):
    """Q4_K with weights of about 0.02."""
    data = np.random.default_rng(1).integers(0, 256, (count, 144), dtype=np.uint8)
    data[:, 0:2] = np.full(count, 4e-5, np.float16).view(np.uint8).reshape(-1, 2)
    data[:, 2:4] = np.full(count, 3e-4, np.float16).view(np.uint8).reshape(-1, 2)
    return data


def write(path, tokenizer, layers):
    kind = gguf.GGMLQuantizationType.Q4_K
    writer = gguf.GGUFWriter(path, "llama")
    gguf_make.add_config(writer, {"num_hidden_layers": layers, "max_position_embeddings": 131072, "hidden_size": CHANNELS,
                                  "intermediate_size": FORWARD, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                                  "rms_norm_eps": 1e-5, "vocab_size": VOCABULARY, "rope_theta": 500000.0}, "llama", 128)
    gguf_make.add_tokenizer(writer, str(tokenizer))
    for name, shape in shapes(layers):
        if len(shape) == 1:
            writer.add_tensor_info(name + ".weight", shape, np.dtype(np.float32), 4 * shape[0])
        else:
            size = shape[0] * shape[1] // 256 * 144
            writer.add_tensor_info(name + ".weight", (shape[0], shape[1] // 256 * 144), np.dtype(np.uint8), size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    some = blocks(1 << 18)
    for _, shape in shapes(layers):
        if len(shape) == 1:
            writer.write_tensor_data(np.ones(shape, np.float32))
            continue
        count = shape[0] * shape[1] // 256
        writer.write_tensor_data(np.resize(some, (count, 144)).reshape(shape[0], -1))
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("hone", "tokenizer", "work"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    path, rows = args.work / f"large-{args.layers}.gguf", args.work / "rows.jsonl"
    if not path.exists():
        write(path.with_suffix(".part"), args.tokenizer, args.layers)
        path.with_suffix(".part").rename(path)
    rows.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
    options = ["--model", path, "--data", rows, "--max-length", args.length, "--per-device-train-batch-size", 1,
               "--gradient-accumulation-steps", 1, "--max-steps", 1, "--threads", args.threads, "--micro-batch-tokens", args.length]
    begin = time.monotonic()
    plan = json.loads(subprocess.run(list(map(str, [args.hone, "plan", "--json", *options])), capture_output=True, check=True).stdout)
    print(f"opened and planned in {time.monotonic() - begin:.2f} s: {plan['peak_bytes'] / 1e9:.2f} GB, "
          f"{plan['parameters'] / 1e9:.2f} billion parameters at {plan['bits_per_weight']:.2f} bits", flush=True)
    begin = time.monotonic()
    done = subprocess.run(list(map(str, [args.hone, "train", "--output", args.work / f"out-{args.layers}", *options])), capture_output=True, text=True)
    print("\n".join(line for line in (done.stdout + done.stderr).splitlines() if re.search("memory|loss|hone:|started", line)))
    print(f"one step in {time.monotonic() - begin:.0f} s, ended with {done.returncode}")
    sys.exit(done.returncode)


main()
