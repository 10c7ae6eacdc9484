"""Blocks of hone's quantisers against llama.cpp's reference (libggml-base of llama_cpp), byte for byte.

    quantise.py TOOL ASSETS

The weights are those of SmolLM2, and random ones of awkward kinds: zeros, constants, one sign, outliers, subnormal scales. The
reference is compiled with fused multiply-adds or without, so near a tie a block may differ: at most 1 of 10,000, counted.
"""
import ctypes
import glob
import os
import sys

import numpy as np

import oracle

TYPES = {"q8_0": (8, 32, 34), "q4_0": (2, 32, 18), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q4_k": (12, 256, 144),
         "q5_k": (13, 256, 176), "q6_k": (14, 256, 210)}


def reference(assets):
    library = glob.glob(os.path.join(assets, "venv/lib/python*/site-packages/llama_cpp/lib/libggml-base.so"))[0]
    quantise = ctypes.CDLL(library).ggml_quantize_chunk
    quantise.restype = ctypes.c_size_t
    quantise.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                         ctypes.c_void_p]

    def blocks(number, rows, bytes):
        out = np.zeros(bytes, np.uint8)
        quantise(number, rows.ctypes.data, out.ctypes.data, 0, len(rows), rows.shape[1], None)
        return out
    return blocks


def weights(assets):
    """Rows of 256 of the model, and of random kinds."""
    from safetensors import safe_open
    parts = []
    with safe_open(os.path.join(assets, "models/smollm2/model.safetensors"), "pt") as file:
        for name in ("model.layers.0.self_attn.q_proj.weight", "model.layers.7.mlp.down_proj.weight",
                     "model.layers.29.self_attn.v_proj.weight", "model.layers.3.mlp.gate_proj.weight"):
            parts.append(file.get_tensor(name).float().numpy().reshape(-1))
    random = np.random.default_rng(5)
    normal = random.standard_normal(1 << 19).astype(np.float32)
    parts += [normal, np.abs(normal[:1 << 15]), -np.abs(normal[:1 << 15]), normal[:1 << 15] * 1e-7, normal[:1 << 15] * 300,
              np.zeros(2048, np.float32), np.full(2048, 0.37, np.float32), random.standard_cauchy(1 << 15).astype(np.float32),
              np.repeat(normal[:1 << 10], 32)]
    return np.concatenate(parts).reshape(-1, 256)


def main():
    tool, assets = sys.argv[1:]
    checks, quantise, rows = oracle.Checks(), reference(assets), weights(assets)
    for name, (number, block, bytes) in TYPES.items():
        want = quantise(number, rows, rows.size // block * bytes).reshape(-1, bytes)
        got = np.frombuffer(oracle.run(tool, name, str(rows.size), input=rows.tobytes()), np.uint8).reshape(-1, bytes)
        differing = int((want != got).any(axis=1).sum())
        checks.at_most(f"{name}: {differing} of {len(want)} blocks differ", differing / len(want), 1e-4)
    checks.end()


main()
