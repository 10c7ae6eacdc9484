#!/usr/bin/env python3
"""Compiles every variant of every kernel for the targets below, and holds docs/kernels.md against the result.

    compile.py VARIANTS PAGE [--cache FILE] [--targets 89,90] [--all] [--python PREFIX] [MODEL DIRECTORY]...

VARIANTS is the tool that lists what there is to compile, PAGE is docs/kernels.md (HONE_UPDATE_DOCS=1 writes it). NVRTC is
$HONE_NVRTC_LIBRARY, or the newest that pip has put into this Python or the one below PREFIX, or the system's. It brings ptxas
along, whose words about each kernel are read. A failure is: a kernel of src/ops that no variant names, a variant that does not
compile, a spill, a stack frame, rows that are not moved 16 bytes at a time, a kernel that reads before it knows that there is a
row, a page that says something else, and a machine without NVRTC. FILE keeps ptxas's words.

The page has a hash of itself and of the kernels that it was made of. While it is right, some of them are compiled for one target, to
see that this can be done; --all compiles all.
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
import time

TARGETS = [75, 80, 86, 89, 90, 100, 120]  # of cards and servers; --targets takes 87, 103, 110 and 121 as well
ATTENTION = "## Attention on tensor cores"        # where the part of the page begins that attention.py writes
SAMPLE, EVERY = [89], 4                 # a target and a part of the variants, of kernels that the page was made of
CHECKED = ["compute_75"]                # only to PTX: what any later driver would take

# Of a multiprocessor: warps, blocks, kilobytes of shared memory, and what of them each block costs besides its own. Checked with
# CUDA 13.0: blocks and shared memory against its cuda_occupancy.h, blocks and warps by the __launch_bounds__ that ptxas ignores
# as out of range. That a block costs one more kilobyte from 8.0 on is in no header (a driver tells it), only in NVIDIA's guide.
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
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for builtins in glob.glob(os.path.dirname(path) + "/libnvrtc-builtins.so.*"):     # NVRTC looks for it by its bare name
            ctypes.CDLL(builtins)
        return library
    return None


SPANS = ("attention_bwd_delta",         # which writes no rows
         "rmsnorm", "rmsnorm_sum", "rmsnorm_bwd_x", "rope_join", "rope_split", "swiglu_packed", "swiglu_packed_bwd")

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


def compiled(job):
    """The error code, what ptxas and the compiler say, and the PTX."""
    text, name, options, target = job
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    words = options.split() + [f"--gpu-architecture={target}"] + (["--ptxas-options=-v"] if target.startswith("sm_") else [])
    array = (ctypes.c_char_p * len(words))(*[w.encode() for w in words])
    code = nvrtc.nvrtcCompileProgram(program, len(words), array)
    log = take(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).rstrip(b"\0").decode(errors="replace")
    ptx = take(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if code == 0 else b""
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code, log, ptx


def compile_one(job):
    """(what ptxas and the compiler say, whether it worked)"""
    code, log, ptx = compiled(job)
    target = job[3]
    made = re.search(rb"\.target\s+(\w+)", ptx)
    want = target.replace("compute_", "sm_").encode()
    if code == 0 and (not made or made[1] != want):
        return f"the PTX is for {made and made[1]}, not for {target}", False
    return log, code == 0


def short_loads(variants, texts):
    """Kernels that move rows (dialect_span.h) and do not read and write 16 bytes at a time in bfloat16."""
    wrong = []
    for kernel in SPANS:
        of_kernel = (v for v in variants if v[1] == kernel and "=bf16" in v[3])
        file, _, _, options, _ = max(of_kernel, key=lambda v: v[3].count("=bf16"))
        ptx = compiled((texts[file], file + ".kl", options, "compute_80"))[2].decode()
        if not re.search(r"ld\.global\S*\.v4", ptx) or not (kernel == SPANS[0] or re.search(r"st\.global\S*\.v4", ptx)):
            wrong.append(f"{kernel} ({options}) has no loads or no stores of 16 bytes")
    return wrong


def compile_keyed(job):
    return job[0], compile_one(job[1])


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
    """How many of the warps that a multiprocessor can hold it holds. Each quarter of them has a quarter of its registers."""
    max_warps, max_blocks, max_shared, extra = LIMITS[target]
    warps, piece = (group + 31) // 32, 256 if target < 80 else 128
    by_registers = 65536 // 4 // (-(-registers * 32 // 256) * 256) * 4 // warps if registers else max_blocks
    by_shared = (max_shared << 10) // (-(-(shared + (extra << 10)) // piece) * piece) if shared + extra else max_blocks
    return min(max_blocks, max_warps // warps, by_registers, by_shared) * warps / max_warps


def ranges(cells):
    """{75: "a", 80: "a", 86: "b"} as "75-80: a, 86: b"; "a" where all agree."""
    runs = []
    for target, cell in cells.items():
        if runs and runs[-1][2] == cell:
            runs[-1][1] = target
        else:
            runs.append([target, target, cell])
    if len(runs) == 1:
        return runs[0][2]
    return ", ".join((f"{a}–{b}: " if a != b else f"{a}: ") + cell for a, b, cell in runs)


def sealed(page, keys):
    """The page with a hash, below its title, of itself and of all that was compiled for it."""
    title, _, body = page.partition("\n\n")
    return f"{title}\n\n<!-- {hashlib.sha256(''.join((body, *sorted(keys))).encode()).hexdigest()} -->\n\n{body}"


def unsealed(page):
    return re.sub(r"<!-- [0-9a-f]{64} -->\n\n", "", page)


def page_text(results, release, targets):
    """One row a kernel and size of tile: the most that a variant of it takes, and the least occupancy."""
    rows = {}
    for (_, name, group, options, _), by_target in results.items():
        sizes = " ".join(re.findall(r"-D((?:WIDTH|TILE_M|TILE|DOWN|PARTS)=\d+)", options))
        row = rows.setdefault((name, int("0" + "".join(re.findall(r"\d+", sizes))), sizes, group), {"variants": 0})
        row["variants"] += 1
        for target, u in by_target.items():
            regs, shared, occ = row.get(target, (0, 0, 1.0))
            row[target] = (max(regs, u["registers"]), max(shared, u["shared"]),
                           min(occ, occupancy(target, u["registers"], u["shared"], group)))
    lines = [
        "# Kernels on CUDA", "",
        f"Made by `tests/cuda/compile.py` with NVRTC {release}; `make docs` rewrites it. Nothing here was timed: these are",
        f"figures of ptxas, NVIDIA's assembler, for {len(results)} variants, each compiled for",
        f"{', '.join(f'sm_{t}' for t in targets)}.",
        "No variant spills registers or has a stack frame.", "",
        "A row is a kernel and its tile; a variant of it is made for each combination of element types. Over its variants,",
        "`registers` (of a thread) and `shared bytes` (of a work-group) are the highest, and `occupancy`, the part of a",
        "multiprocessor's warps that can be resident, is the lowest. Numbers before a colon are targets; without one the",
        "value holds for all.",
        "",
        "| kernel | tile | variants | work-items | shared bytes | registers | occupancy |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, _, sizes, group), row in sorted(rows.items()):
        shared, registers, warps = (ranges({t: show(row[t]) for t in targets if t in row})
                                    for show in (lambda c: f"{c[1]}", lambda c: f"{c[0]}", lambda c: f"{c[2]:.0%}"))
        lines.append(f"| {name} | {sizes} | {row['variants']} | {group} | {shared} | {registers} | {warps} |")
    return "\n".join(lines) + "\n"


def targets_of(variant, targets):
    """A kernel for tensor cores has a lowest target."""
    return [t for t in [f"sm_{t}" for t in targets] + CHECKED if int(t.split("_")[1]) >= variant[4]]


def kernels_without_variant(variants):
    """The texts name their kernels by the macro that chooses them. Those for processors are only OpenCL C."""
    known = {v[1] for v in variants}
    folder = pathlib.Path(__file__).resolve().parents[2] / "src"
    return [f"{file.name}: no program and no case uses kernel {name}" for file in sorted(folder.rglob("*.kl"))
            for name in re.findall(r"ifdef ONLY_(\w+)", file.read_text()) if name not in known and not name.endswith("_processor")]


def reads_without_rows():
    """Kernels that touch an operand before they know that there is a row. Each is run once over none, with operands at 0."""
    wrong = []
    for file in sorted((pathlib.Path(__file__).resolve().parents[2] / "src").rglob("*.kl")):
        text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)
        for name, body in re.findall(r"^KERNEL\((\w+)\)\(.*?\)\n\{\n(.*?)^\}", text, re.S | re.M):
            before = re.split(r"\brows\b|\bUPDATE_BEGIN\b", body)[0]
            if re.search(r"\b(LOAD|STORE|GET|PUT|ELEMENT)\(", before):
                wrong.append(f"{file.name}: kernel {name} touches an operand before it compares with `rows`")
    return wrong


def compile_all(jobs, known, python, keep):
    """A process of its own for each core: NVRTC compiles one program at a time. What is known is kept now and then."""
    last = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), start_worker, (python,)) as pool:
        for key, result in pool.imap_unordered(compile_keyed, jobs, 4):
            known[key] = result
            if time.monotonic() - last > 10:
                keep()
                last = time.monotonic()


def main():
    global nvrtc
    parser = argparse.ArgumentParser()
    parser.add_argument("variants")
    parser.add_argument("page")
    parser.add_argument("--cache")
    parser.add_argument("--targets")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--python")
    parser.add_argument("models", nargs="*")
    options = parser.parse_intermixed_args()
    nvrtc = open_nvrtc(options.python)
    if not nvrtc:
        print("compile: there is no NVRTC: pip install nvidia-cuda-nvrtc")
        return 1
    targets = [int(t) for t in options.targets.split(",")] if options.targets else TARGETS
    missing = [t for t in targets if t not in supported()]
    if missing:
        print(f"compile: NVRTC {version()} does not know {missing}: pip install --upgrade nvidia-cuda-nvrtc")
        return 1

    listed = subprocess.run([options.variants, "list", *options.models], check=True, capture_output=True, text=True)
    variants = [tuple(line.split("\t")) for line in sorted(listed.stdout.splitlines())]
    wrong = [f"{v[1]} has no text" for v in variants if v[0] == "-"]
    variants = [(f, n, int(g), o, int(least)) for f, n, g, least, o in variants if f != "-"]
    wrong += kernels_without_variant(variants) + reads_without_rows()
    listed_variants = variants
    texts = {f: subprocess.run([options.variants, "text", f], check=True, capture_output=True, text=True).stdout
             for f in {v[0] for v in variants}}

    known = {}
    if options.cache and os.path.exists(options.cache):
        known = json.loads(pathlib.Path(options.cache).read_text())
    all_jobs = {(v, target): (texts[v[0]], v[0] + ".kl", v[3], target) for v in variants for target in targets_of(v, targets)}
    keys = {at: hashlib.sha256("\0".join((version(),) + job).encode()).hexdigest() for at, job in all_jobs.items()}
    path, partly = pathlib.Path(options.page), bool(options.targets)
    page, more = (path.read_text() if path.exists() else "").partition("\n" + ATTENTION)[::2]
    if not partly and not options.all and not os.environ.get("HONE_UPDATE_DOCS") and page == sealed(unsealed(page), keys.values()):
        partly, targets, variants = True, SAMPLE, variants[::EVERY]
    jobs = [(keys[v, t], all_jobs[v, t]) for v in variants for t in targets_of(v, targets) if keys[v, t] not in known]

    def keep():
        if options.cache:
            fresh = pathlib.Path(f"{options.cache}.{os.getpid()}")
            fresh.write_text(json.dumps({k: known[k] for k in keys.values() if k in known}))
            fresh.replace(options.cache)

    start = time.monotonic()
    if jobs:
        compile_all(jobs, known, options.python, keep)
        keep()

    results = {}
    for v in variants:
        for target in targets_of(v, targets):
            log, worked = known[keys[v, target]]
            used = usage(log) if target.startswith("sm_") else {"stack": 0, "spill": 0}
            if not worked or used is None:
                wrong.append(f"{v[1]} ({v[3]}) for {target}: {log.strip()}")
            elif used["stack"] or used["spill"]:
                wrong.append(f"{v[1]} ({v[3]}) for {target}: {used['stack']} bytes of stack, {used['spill']} bytes spilled")
            elif target.startswith("sm_"):
                results.setdefault(v, {})[int(target[3:])] = used
    wrong += short_loads(listed_variants, texts)
    for line in wrong:
        print("FAILED", line)
    print(f"compile: NVRTC {version()}, {len(variants)} variants x {len(targets)} targets and {', '.join(CHECKED)}, "
          f"{len(jobs)} compiled now in {time.monotonic() - start:.0f} s, {len(wrong)} wrong")
    if wrong or partly:
        return 1 if wrong else 0

    text = sealed(page_text(results, version(), targets), keys.values())
    if os.environ.get("HONE_UPDATE_DOCS"):
        path.write_text(text + ("\n" + ATTENTION + more if more else ""))
    elif page != text:
        print(f"compile: {path} is not what NVRTC {version()} makes of the kernels: HONE_UPDATE_DOCS=1 writes it (make docs)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
