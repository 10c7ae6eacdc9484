#!/usr/bin/env python3
"""Compiles every variant of every kernel for every target that hone names, and holds docs/kernels.md against the result.

    compile.py VARIANTS PAGE [--cache FILE] [--targets 89,90] [--python PREFIX] [MODEL DIRECTORY]...

VARIANTS is the tool that lists what there is to compile, PAGE is docs/kernels.md (HONE_UPDATE_DOCS=1 writes it). NVRTC is
$HONE_NVRTC_LIBRARY, or the newest that pip has put into this Python or the one below PREFIX, or the system's. It brings ptxas
along, whose words about each kernel are read: a spill or a stack frame is a failure. Numbers depend on the compiler, so the page
is compared only where it was made by the same one.
Exit code 77: there is no NVRTC.
"""
import argparse
import ctypes
import glob
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

TARGETS = [75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121]
CHECKED = ["compute_75"]                # to PTX alone: what any later driver would take

# Of a multiprocessor: warps, blocks, bytes of shared memory, and what of it each block costs beside its own.
LIMITS = {75: (32, 16, 64, 0), 80: (64, 32, 164, 1), 86: (48, 16, 100, 1), 87: (48, 16, 164, 1), 89: (48, 24, 100, 1),
          90: (64, 32, 228, 1), 100: (64, 32, 228, 1), 103: (64, 32, 228, 1), 110: (48, 24, 228, 1), 120: (48, 24, 100, 1),
          121: (48, 24, 100, 1)}


def nvrtc_paths(python):
    own = os.environ.get("HONE_NVRTC_LIBRARY")
    if own:
        return [own]
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for prefix in filter(None, [python, os.environ.get("VIRTUAL_ENV")]):
        places |= set(glob.glob(prefix + "/lib/python3*/site-packages"))
    found = [f for p in places for f in glob.glob(p + "/nvidia/*/lib/libnvrtc.so.1[23]")]
    return sorted(found, key=lambda f: f[-2:], reverse=True) + ["libnvrtc.so.13", "libnvrtc.so.12"]


def open_nvrtc(python):
    for path in nvrtc_paths(python):
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
    return None


nvrtc = None


def version():
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def supported():
    count = ctypes.c_int()
    nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    targets = (ctypes.c_int * count.value)()
    nvrtc.nvrtcGetSupportedArchs(targets)
    return set(targets)


def take(program, size_of, get):
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)):
        return b""
    data = ctypes.create_string_buffer(size.value + 1)
    get(program, data)
    return data.raw[:size.value]


def compile_one(job):
    """(what ptxas and the compiler say, whether it worked)"""
    text, name, options, target = job
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    words = options.split() + [f"--gpu-architecture={target}"] + (["--ptxas-options=-v"] if target.startswith("sm_") else [])
    array = (ctypes.c_char_p * len(words))(*[w.encode() for w in words])
    code = nvrtc.nvrtcCompileProgram(program, len(words), array)
    log = take(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).rstrip(b"\0").decode(errors="replace")
    ptx = take(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if code == 0 else b""
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    made = re.search(rb"\.target\s+(\w+)", ptx)
    want = target.replace("compute_", "sm_").encode()
    if code == 0 and (not made or made[1] != want):
        return f"the PTX is for {made and made[1]}, not for {target}", False
    return log, code == 0


def start_worker(python):
    global nvrtc
    nvrtc = open_nvrtc(python)


def usage(log):
    """Registers, bytes of shared memory, bytes of spills and of the stack frame; None if ptxas did not say."""
    used = re.search(r"Used (\d+) registers", log)
    frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if not used or not frame:
        return None
    shared = re.search(r"(\d+) bytes smem", log)
    return {"registers": int(used[1]), "shared": int(shared[1]) if shared else 0, "stack": int(frame[1]),
            "spill": int(frame[2]) + int(frame[3])}


def occupancy(target, registers, shared, group):
    """How many of the warps that a multiprocessor can hold it holds."""
    warps_most, blocks_most, shared_most, extra = LIMITS[target]
    warps = (group + 31) // 32
    by_registers = 65536 // (-(-registers * 32 // 256) * 256) // warps if registers else blocks_most
    by_shared = (shared_most << 10) // (-(-(shared + (extra << 10)) // 128) * 128) if shared + extra else blocks_most
    return min(blocks_most, warps_most // warps, by_registers, by_shared) * warps / warps_most


def page_text(results, release, targets):
    """One row a kernel: the most that any of its variants takes, and the least occupancy."""
    rows = {}
    for (file, name, group, _), by_target in results.items():
        row = rows.setdefault((file, name, group), {"variants": 0})
        row["variants"] += 1
        for target, u in by_target.items():
            regs, shared, occ = row.get(target, (0, 0, 1.0))
            row[target] = (max(regs, u["registers"]), max(shared, u["shared"]),
                           min(occ, occupancy(target, u["registers"], u["shared"], group)))
    lines = [
        "# Kernels on CUDA", "",
        f"Made by `tests/cuda/compile.py` with NVRTC {release}; `make docs` rewrites it. Nothing here was measured: these are",
        f"ptxas's words about {len(results)} variants, each compiled for all {len(targets)} targets. No variant spills registers",
        "or has a stack frame.", "",
        "Of each kernel the variant that takes most: registers of a thread · part of a multiprocessor's warps that can be",
        "resident. Shared memory is the most on any target.", "",
        "| kernel | variants | group | shared bytes | " + " | ".join(f"sm_{t}" for t in targets) + " |",
        "|---|---|---|---|" + "---|" * len(targets),
    ]
    for (file, name, group), row in sorted(rows.items()):
        shared = max(row[t][1] for t in targets)
        cells = " | ".join(f"{row[t][0]} · {row[t][2]:.0%}" for t in targets)
        lines.append(f"| {name} | {row['variants']} | {group} | {shared} | {cells} |")
    return "\n".join(lines) + "\n"


def main():
    global nvrtc
    parser = argparse.ArgumentParser()
    parser.add_argument("variants")
    parser.add_argument("page")
    parser.add_argument("--cache")
    parser.add_argument("--targets")
    parser.add_argument("--python")
    parser.add_argument("models", nargs="*")
    options = parser.parse_intermixed_args()
    nvrtc = open_nvrtc(options.python)
    if not nvrtc:
        print("compile: there is no NVRTC: pip install nvidia-cuda-nvrtc")
        return 77
    targets = [int(t) for t in options.targets.split(",")] if options.targets else TARGETS
    missing = [t for t in targets if t not in supported()]
    if missing:
        print(f"compile: NVRTC {version()} does not know {missing}: pip install --upgrade nvidia-cuda-nvrtc")
        return 1

    models = [m for m in options.models if os.path.exists(m + "/config.json")]
    listed = subprocess.run([options.variants, "list", *models], check=True, capture_output=True, text=True).stdout.splitlines()
    variants = [tuple(line.split("\t")) for line in sorted(listed)]
    wrong = [f"{v[1]} has no text" for v in variants if v[0] == "-"]
    variants = [(f, n, int(g), o) for f, n, g, o in variants if f != "-"]
    texts = {f: subprocess.run([options.variants, "text", f], check=True, capture_output=True, text=True).stdout
             for f in {v[0] for v in variants}}

    known = {}
    if options.cache and os.path.exists(options.cache):
        known = json.loads(pathlib.Path(options.cache).read_text())
    jobs, keys = [], {}
    for v in variants:
        for target in [f"sm_{t}" for t in targets] + CHECKED:
            job = (texts[v[0]], v[0] + ".kl", v[3], target)
            key = hashlib.sha256("\0".join((version(),) + job).encode()).hexdigest()
            keys[v, target] = key
            if key not in known:
                jobs.append((key, job))
    if jobs:
        # A process of its own for each core: NVRTC compiles one program at a time.
        with multiprocessing.get_context("spawn").Pool(os.cpu_count(), start_worker, (options.python,)) as pool:
            for (key, _), result in zip(jobs, pool.imap(compile_one, [j for _, j in jobs], 8)):
                known[key] = result
    if options.cache:
        pathlib.Path(options.cache).write_text(json.dumps({k: known[k] for k in keys.values()}))

    results = {}
    for v in variants:
        for target in [f"sm_{t}" for t in targets] + CHECKED:
            log, worked = known[keys[v, target]]
            used = usage(log) if target.startswith("sm_") else {"stack": 0, "spill": 0}
            if not worked or used is None:
                wrong.append(f"{v[1]} ({v[3]}) for {target}: {log.strip()}")
            elif used["stack"] or used["spill"]:
                wrong.append(f"{v[1]} ({v[3]}) for {target}: {used['stack']} bytes of stack, {used['spill']} bytes spilled")
            elif target.startswith("sm_"):
                results.setdefault(v, {})[int(target[3:])] = used
    for line in wrong:
        print("FAILED", line)
    print(f"compile: NVRTC {version()}, {len(variants)} variants x {len(targets)} targets and {', '.join(CHECKED)}, "
          f"{len(jobs)} compiled now, {len(wrong)} wrong")
    if wrong or options.targets:
        return 1 if wrong else 0

    page, text = pathlib.Path(options.page), page_text(results, version(), targets)
    if os.environ.get("HONE_UPDATE_DOCS"):
        page.write_text(text)
    elif not page.exists() or (f"NVRTC {version()};" in page.read_text() and page.read_text() != text):
        print(f"compile: {page} is not what the kernels are: HONE_UPDATE_DOCS=1 writes it (make docs)")
        return 1
    elif page.read_text() != text:
        print(f"compile: {page} was made by another NVRTC and not compared")
    return 0


if __name__ == "__main__":
    sys.exit(main())
