"""NF4 against bitsandbytes: nf4.py TOOL

    nf4.py TOOL             synthetic matrices
    nf4.py TOOL MODEL       every matrix of the layers of a model directory

What bitsandbytes quantised comes out of hone as the same float32 numbers, bit by bit. What hone quantises has bitsandbytes' map,
4-bit codes and absmax, bit by bit. The code of an absmax is the nearest one; bitsandbytes on the CPU looks it up on a grid of
2^-15 and may take the neighbour where two are as near as that: these are counted. The mean of absmax may differ by its rounding:
hone sums in double.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes longer than all else

import torch
import bitsandbytes.functional as bnb
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute as plain_dequantise

GRID = 2.0 ** -15
NAMES = ("w", "packed", "codes", "scales", "map", "absmax")


def call(tool, what, folder, w):
    paths = [os.path.join(folder, name) for name in NAMES]
    subprocess.run([tool, what] + paths + [str(w.numel()), str(w.dtype).removeprefix("torch.")], check=True)


def write(folder, name, array):
    np.concatenate([array.reshape(-1).view(np.uint8), np.zeros(-array.nbytes % 4, np.uint8)]).tofile(os.path.join(folder, name))


def read(folder, name, dtype):
    return np.fromfile(os.path.join(folder, name), dtype)


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


def nearest(values, points):
    """Indices of the nearest points, and how much nearer they are than a neighbour, by the distance to the middle of the two."""
    middles = (points[:-1] + points[1:]) / 2
    return np.searchsorted(middles, values), np.abs(values[:, None] - middles).min(1)


def dequantise(packed, state):
    """bitsandbytes' kernel for CPUs is wrong where blocks run over the ends of rows; its plain code is right."""
    if state.shape[-1] % 64 == 0:
        return bnb.dequantize_4bit(packed, state)
    absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
    return plain_dequantise(packed.reshape(-1), absmax, state.code, 64, state.shape, state.dtype)


def check_matrix(tool, name, w):
    """Counts: blocks, and codes of absmax that differ."""
    single, plain = bnb.quantize_4bit(w, quant_type="nf4", compress_statistics=False)
    packed, state = bnb.quantize_4bit(w, quant_type="nf4", compress_statistics=True)
    want = dequantise(packed, state).float().numpy().reshape(-1)
    second, blocks = state.state2, -(w.numel() // -64)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "packed", packed.numpy())
        write(folder, "codes", state.absmax.numpy())
        write(folder, "scales", np.concatenate([[state.offset.numpy()], second.absmax.numpy()]).astype(np.float32))
        write(folder, "map", second.code.numpy())
        call(tool, "dequantise", folder, w)
        got = read(folder, "w", np.float32)
        if w.dtype != torch.float32:
            got = torch.from_numpy(got).to(w.dtype).float().numpy()
        check(np.array_equal(got, want), f"{name}: {np.sum(got != want)} dequantised values differ")

        write(folder, "w", w.reshape(-1).view(torch.int32 if w.dtype == torch.float32 else torch.int16).numpy())
        call(tool, "quantise", folder, w)
        check(np.array_equal(read(folder, "map", np.float32), second.code.numpy()), f"{name}: another map")
        ours = read(folder, "packed", np.uint8)[:packed.numel()]
        check(np.array_equal(ours, packed.numpy().reshape(-1)), f"{name}: other 4-bit codes")
        check(np.array_equal(ours, single.numpy().reshape(-1)), f"{name}: other 4-bit codes without double quantisation")
        absmax = read(folder, "absmax", np.float32)
        check(np.array_equal(absmax, plain.absmax.numpy()), f"{name}: another absmax")
        codes, scales = read(folder, "codes", np.uint8)[:blocks], read(folder, "scales", np.float32)
        call(tool, "dequantise", folder, w)
        ours = read(folder, "w", np.float32)

    offset, groups = np.float32(scales[0]), np.repeat(scales[1:], 256)[:blocks]
    check(abs(float(offset) - float(state.offset)) <= 1e-6 * float(state.offset), f"{name}: mean {offset}, not {state.offset}")
    check(np.allclose(scales[1:], second.absmax.numpy(), rtol=1e-5, atol=1e-6 * float(state.offset)), f"{name}: other scales")
    with np.errstate(divide="ignore", invalid="ignore"):
        normal = (absmax - offset) * (np.float32(1) / np.maximum(groups, np.float32(1e-38)))
    indices, margin = nearest(normal, second.code.numpy())
    check(np.array_equal(codes, indices), f"{name}: {np.sum(codes != indices)} codes of absmax are not the nearest")
    other = (codes != state.absmax.numpy()) & (groups > 0)      # a group of equal ones has scale 0 and any codes
    check(np.all(margin[other] <= GRID), f"{name}: codes of absmax differ where no two are as near")
    same = np.repeat(~other, 64)[:w.numel()]
    error = np.abs(ours - want)[same].max() / max(np.abs(want).max(), 1e-30)
    if w.dtype == torch.float32:
        check(error <= 1e-6, f"{name}: quantised and back, off by {error:.1e} of the largest value")
    print(f"{name}: {w.numel()} values the same bits; {int(other.sum())} of {blocks} codes of absmax between two; "
          f"back to {error:.1e}; mean off by {float(np.abs(offset - state.offset.numpy()) / np.spacing(offset)):.0f} ulp")
    return blocks, int(other.sum())


def check_model(tool, folder):
    import safetensors
    blocks = differ = 0
    with safetensors.safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
        for name in sorted(file.keys()):
            if "layers" in name and name.endswith("proj.weight"):
                more, other = check_matrix(tool, name, file.get_tensor(name))
                blocks, differ = blocks + more, differ + other
    print(f"{blocks * 64} values: the same 4-bit codes and absmax; of {blocks} codes of absmax {differ} differ")


def main():
    tool = sys.argv[1]
    torch.manual_seed(5)
    if len(sys.argv) > 2:
        return check_model(tool, sys.argv[2])
    check_matrix(tool, "normal", torch.randn(1024, 640) * 0.02)
    check_matrix(tool, "one block", torch.randn(1, 64))
    check_matrix(tool, "one group and a bit", torch.randn(257, 64))
    check_matrix(tool, "odd groups", torch.randn(37, 192) * 3)
    check_matrix(tool, "rows of 80", torch.randn(37, 80))
    check_matrix(tool, "odd rows", torch.randn(67, 83).bfloat16())
    check_matrix(tool, "short", torch.randn(3, 5))
    check_matrix(tool, "zeros", torch.zeros(4, 64))
    check_matrix(tool, "zero blocks", torch.cat([torch.zeros(5, 64), torch.randn(3, 64)]))
    check_matrix(tool, "wild scales", torch.randn(512, 128) * torch.exp(4 * torch.randn(512, 1)))
    check_matrix(tool, "tiny", torch.randn(64, 64) * 1e-30)
    values = bnb.get_4bit_type("nf4", "cpu")
    check_matrix(tool, "values", values.repeat(64 * 4).reshape(-1, 64))
    check_matrix(tool, "between values", torch.cat([(values[:-1] + values[1:]) / 2, values[-1:]]).repeat(64 * 4).reshape(-1, 64))
    check_matrix(tool, "bfloat16", (torch.randn(256, 256) * 0.05).bfloat16())
    check_matrix(tool, "float16", (torch.randn(256, 256) * 0.05).half())


main()
