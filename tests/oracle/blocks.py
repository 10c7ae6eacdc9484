"""GGUF's blocks against the gguf package: blocks.py TOOL ASSETS DEVICE …

Each type that hone computes with gives the reference's float32 numbers, bit by bit, on each device: on random valid blocks, and on
real ones, rows of SmolLM2's published file. Valid are finite scales, not negative in the types with a minimum; very small ones,
which float16 stores with fewer bits, are among them.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, dequantize

COLUMNS, ROWS = 768, 40
HALVES = {"q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0], "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2],
          "q5_k": [0, 2], "q6_k": [208], "iq4_nl": [0], "iq4_xs": [0], "mxfp4": []}


def random_blocks(rng, name):
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name.upper()]]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
    for at in HALVES[name]:
        half = (rng.standard_normal(len(blocks)) * 10.0 ** rng.integers(-9, 3, len(blocks))).astype(np.float16)
        half = np.abs(half) if len(HALVES[name]) == 2 and at == HALVES[name][0] else half
        blocks[:, at:at + 2] = half.view(np.uint8).reshape(-1, 2)
    return blocks


def real_blocks(assets):
    """The largest tensor of each type in SmolLM2's file: type to rows of its first blocks."""
    tensors = {}
    for tensor in GGUFReader(os.path.join(assets, "models", "smollm2.q4_1.gguf")).tensors:
        name = tensor.tensor_type.name.lower()
        if name in HALVES and (name not in tensors or tensor.n_bytes > tensors[name].n_bytes):
            tensors[name] = tensor
    for name, tensor in tensors.items():
        elements, size = GGML_QUANT_SIZES[tensor.tensor_type]
        yield name, np.ascontiguousarray(tensor.data).reshape(-1, size)[:ROWS * COLUMNS // elements]


def check(tool, device, kind, cases):
    with tempfile.TemporaryDirectory() as folder:
        for name, blocks in cases.items():
            blocks.tofile(os.path.join(folder, name + ".blocks"))
        subprocess.run([tool, device, str(COLUMNS), folder, *cases], check=True)
        for name, blocks in cases.items():
            got = np.fromfile(os.path.join(folder, name + ".numbers"), np.uint32)
            want = dequantize(blocks, GGMLQuantizationType[name.upper()]).reshape(-1).view(np.uint32)
            if not np.array_equal(got, want):
                at = np.flatnonzero(got != want)[0]
                sys.exit(f"FAILED: {device}: {name}: {np.sum(got != want)} of {got.size} {kind} numbers differ, first number {at}: "
                         f"{got.view(np.float32)[at]!r}, not {want.view(np.float32)[at]!r}")
    print(f"{device}: {kind}: {', '.join(cases)}: the same bits")


def main():
    tool, assets, *devices = sys.argv[1:]
    rng = np.random.default_rng(12)
    random = {name: random_blocks(rng, name) for name in HALVES}
    real = dict(real_blocks(assets))
    if "q4_1" not in real:
        sys.exit("FAILED: SmolLM2's file has no Q4_1")
    for device in devices:
        check(tool, device, "random", random)
        check(tool, device, "real", real)


main()
