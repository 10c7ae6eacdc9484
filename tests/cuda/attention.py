#!/usr/bin/env python3
"""Attention on tensor cores, kernel by kernel, on the simulator: right, the same in any order of blocks, and what it costs.

    attention.py VARIANTS LIBCUDASIM PAGE [--python PREFIX]

VARIANTS and PREFIX are as in compile.py. Every case is compared with the formula in double precision (numpy), and computed a
second time with the blocks in the reverse order. The mma instructions, the accesses to shared memory and their bank conflicts
are the last part of PAGE, docs/kernels.md (HONE_UPDATE_DOCS=1 writes it).
"""
import argparse
import ctypes
import functools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np

import compile as compiler

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src"
LIMITS = {"bf16": 1e-5, "f16": 1e-6, "f32": 1e-10}       # NMSE, as docs/numerics.md has them
PARTS = {name: int(number) for name, number in re.findall(r"(MMA_PART\w*) = (\d+)", (SOURCE / "ops/attention/attention_mma.h").read_text())}
# kernel: file, types of its operands (a: of the run, i: an index, s: a statistic), bytes of a row in a warp
KERNELS = {"attention_mma": ("attention_mma", "aaaiiasai", PARTS["MMA_PART"]),
           "attention_mma_bwd_q": ("attention_mma_bwd", "aaaiisasai", PARTS["MMA_PART"]),
           "attention_mma_bwd_kv": ("attention_mma_bwd", "aaaiiisasaai", PARTS["MMA_PART_KV"])}
# type, head size, tokens, window, cap, sinks
CASES = [("bf16", 64, 70, 0, 0, False), ("bf16", 80, 70, 17, 0, False), ("bf16", 96, 70, 0, 1.5, False),
         ("bf16", 128, 70, 20, 0, True), ("bf16", 256, 70, 0, 1.5, True), ("f16", 64, 70, 0, 1.5, True),
         ("f16", 96, 70, 20, 0, False), ("f32", 64, 70, 0, 0, True), ("f32", 128, 70, 20, 1.5, False)]
COUNTED = 192  # tokens of the cases that are counted: whole tiles, one sequence

cuda = None


def check(code, what):
    if code:
        cuda.cudasim_last_error.restype = ctypes.c_char_p
        sys.exit(f"attention: {what}: {code}, {cuda.cudasim_last_error().decode()}")


def connect():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
    check(cuda.cuCtxSetCurrent(context), "context")


def upload(array):
    at, array = ctypes.c_uint64(), np.ascontiguousarray(array)
    check(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(array.nbytes)), "cuMemAlloc")
    check(cuda.cuMemcpyHtoD_v2(at, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes)), "copy")
    return at


def download(at, like):
    array = np.empty(like.shape, like.dtype)
    check(cuda.cuMemcpyDtoH_v2(array.ctypes.data_as(ctypes.c_void_p), at, ctypes.c_size_t(array.nbytes)), "copy back")
    return array


def store(x, kind):
    if kind != "bf16":
        return x.astype(np.float32 if kind == "f32" else np.float16)
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def load(x, kind):
    return (x.astype(np.uint32) << 16).view(np.float32).astype(float) if kind == "bf16" else x.astype(float)


@functools.lru_cache(None)
def ptx(text, name, options):
    program, nvrtc = ctypes.c_void_p(), compiler.nvrtc
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    words = [w.encode() for w in options.split() + ["--gpu-architecture=compute_89"]]
    if nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)):
        sys.exit(compiler.take(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode())
    return compiler.take(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)


def counts():
    cuda.cudasim_banks.restype = ctypes.c_longlong
    return np.array([cuda.cudasim_banks(w) for w in (b"mma", b"accesses", b"conflicts")])


def launch(texts, kernel, kind, data, tokens, heads, kv_heads, channels, cap):
    """The kernel on arrays, of which None is absent and those after `out` are results; what it counted."""
    file, types, part = KERNELS[kernel]
    size = 4 if kind == "f32" else 2
    parts = -(-channels * size // part)
    parts = 4 if parts > 2 else parts
    group, multiple = 128 if parts == 1 else 256, 16 * parts
    options = f"-DONLY_{kernel} -DGROUP={group} -DWIDTH={-(-channels // multiple) * multiple} -DPARTS={parts}"
    options += " -DCAPPED=1" if cap else ""
    for i, t in enumerate(types):
        options += f" -DTYPE_{i}={dict(a=kind, i='i32', s='f32')[t]} -DHAS_{i}={int(data[i] is not None)}"
    rows = -(-tokens // (group // 2 // parts)) * (kv_heads if kernel.endswith("kv") else heads)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    places = [upload(d) if d is not None else ctypes.c_uint64(0) for d in data]
    sizes = [ctypes.c_int64(n) for n in (rows, tokens, heads, channels, tokens, kv_heads)]
    arguments = places + sizes + [ctypes.c_float(channels ** -0.5), ctypes.c_float(cap)]
    pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments])
    check(cuda.cuModuleLoadData(ctypes.byref(module), ptx(texts[file], file + ".kl", options)), "load")
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()), kernel)
    before = counts()
    check(cuda.cuLaunchKernel(function, rows, 1, 1, group, 1, 1, 0, None, pointers, None), kernel)
    check(cuda.cuCtxSynchronize(), kernel)
    return places, counts() - before


def formula(q, k, v, dy, sinks, seen, cap):
    """y, lse, dq, dk, dv in double precision."""
    share, channels = q.shape[1] // k.shape[1], q.shape[2]
    keys, values, scale = np.repeat(k, share, 1), np.repeat(v, share, 1), channels ** -0.5
    z = np.einsum("thd,shd->hts", q, keys) * scale
    slope = 1 - np.tanh(z / cap) ** 2 if cap else np.ones_like(z)
    z = np.where(seen, cap * np.tanh(z / cap) if cap else z, -np.inf)
    all_z = z if sinks is None else np.concatenate([z, np.broadcast_to(sinks[:, None, None], (*z.shape[:2], 1))], 2)
    top = all_z.max(2, keepdims=True)
    lse = top + np.log(np.exp(all_z - top).sum(2, keepdims=True))
    p = np.exp(z - lse)
    y = np.einsum("hts,shd->thd", p, values)
    ds = p * (np.einsum("thd,shd->hts", dy, values) - np.einsum("thd,thd->ht", y, dy)[:, :, None]) * slope * scale
    of_keys = lambda x: x.reshape(len(x), k.shape[1], share, channels).sum(2)
    return (y, lse[..., 0].T, np.einsum("hts,shd->thd", ds, keys), of_keys(np.einsum("hts,thd->shd", ds, q)),
            of_keys(np.einsum("hts,thd->shd", p, dy)))


def run(texts, kind, channels, tokens, window, cap, with_sinks, starts=(0, 23), kernels=KERNELS):
    """{kernel: counts}, and {result: (array as stored, NMSE)}, of random numbers in sequences that begin at `starts`."""
    random, heads, kv_heads = np.random.default_rng(1), 4, 2
    make = lambda *shape: store(random.standard_normal(shape), kind)
    q, k, v, dy = (make(tokens, n, channels) for n in (heads, kv_heads, kv_heads, heads))
    sinks = make(heads)
    t = np.arange(tokens, dtype=np.int32)
    first = np.array([max(s for s in starts if s <= i) for i in range(tokens)], np.int32)
    first = np.maximum(first, t - window + 1).astype(np.int32) if window else first
    until = np.array([max(i for i in range(tokens) if first[i] <= s <= i) for s in range(tokens)], np.int32)
    seen = (t[None] >= first[:, None]) & (t[None] <= t[:, None])
    exact = formula(*(load(x, kind) for x in (q, k, v, dy)), load(sinks, kind) if with_sinks else None, seen, cap)
    lse = exact[1].astype(np.float32)
    delta = np.einsum("thd,thd->th", exact[0], load(dy, kind)).astype(np.float32)
    data = {"attention_mma": ([q, k, v, first, t, np.zeros_like(q), np.zeros_like(lse), sinks if with_sinks else None, None],
                              {5: 0, 6: 1}),
            "attention_mma_bwd_q": ([q, k, v, first, t, lse, dy, delta, np.zeros_like(q), None], {8: 2}),
            "attention_mma_bwd_kv": ([q, k, v, first, t, until, lse, dy, delta, np.zeros_like(k), np.zeros_like(k), None],
                                     {9: 3, 10: 4})}
    counted, results = {}, {}
    for kernel in kernels:
        values, outputs = data[kernel]
        places, counted[kernel] = launch(texts, kernel, kind, values, tokens, heads, kv_heads, channels, cap)
        for index, which in outputs.items():
            got = download(places[index], values[index])
            error = load(got, kind if which != 1 else "f32") - exact[which]
            results["y lse dq dk dv".split()[which]] = (got, float((error ** 2).sum() / (exact[which] ** 2).sum()))
    return counted, results


def page_text(texts):
    lines = [compiler.ATTENTION, "",
             f"Counted by the simulator (`tests/cuda/attention.py`), for one causal sequence of {COUNTED} tokens. `mma` are a",
             "warp's instructions; `shared` are a warp's accesses to shared memory, ldmatrix above all, without what cp.async writes;",
             "`conflicts` are the times that an access waits for a bank beyond those of its bytes.", "",
             "| kernel | type | head size | mma | shared | mma to shared | conflicts |", "|---|---|---|---|---|---|---|"]
    for kernel in KERNELS:
        for kind, channels in (("bf16", 64), ("bf16", 128), ("bf16", 256), ("f32", 128)):
            mma, accesses, conflicts = run(texts, kind, channels, COUNTED, 0, 0, False, (0,), [kernel])[0][kernel]
            lines.append(f"| {kernel} | {kind} | {channels} | {mma} | {accesses} | {mma / accesses:.2f} | {conflicts} |")
    return "\n".join(lines) + "\n"


def check_cases(texts):
    wrong = 0
    for case in CASES:
        results = run(texts, *case)[1]
        os.environ["CUDASIM_REVERSE"] = "1"
        cuda.cudasim_reset()
        connect()
        again = run(texts, *case)[1]
        os.environ["CUDASIM_REVERSE"] = "0"
        cuda.cudasim_reset()
        connect()
        far = [name for name, (_, error) in results.items() if not error < LIMITS[case[0] if name != "lse" else "f32"]]
        other = [name for name, (got, _) in results.items() if got.tobytes() != again[name][0].tobytes()]
        wrong += bool(far or other)
        print(("FAILED" if far or other else "ok"), *case, {name: f"{error:.1e}" for name, (_, error) in results.items()},
              f"not the same twice: {other}" if other else "", flush=True)
    return wrong


def main():
    global cuda
    parser = argparse.ArgumentParser()
    parser.add_argument("variants")
    parser.add_argument("library")
    parser.add_argument("page")
    parser.add_argument("--python")
    options = parser.parse_args()
    os.environ["CUDASIM_BANKS"] = "1"
    compiler.nvrtc = compiler.open_nvrtc(options.python)
    cuda = ctypes.CDLL(options.library)
    connect()
    texts = {f: subprocess.run([options.variants, "text", f], check=True, capture_output=True, text=True).stdout
             for f in {file for file, _, _ in KERNELS.values()}}
    if check_cases(texts):
        return 1
    page, text = pathlib.Path(options.page), page_text(texts)
    before, _, after = page.read_text().partition(compiler.ATTENTION)
    if os.environ.get("HONE_UPDATE_DOCS"):
        page.write_text(before.rstrip("\n") + "\n\n" + text)
    elif compiler.ATTENTION + after != text:
        print(f"attention: the last part of {page} is not what was counted: HONE_UPDATE_DOCS=1 writes it (make docs)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
