#!/usr/bin/env python3
"""Makes the PTX of the simulator's tests again: regenerate.py NVRTC [TARGET] [FOLDER]
or the cubin of one of them, with its PTX after it: regenerate.py NVRTC sm_80 FILE.cubin

NVRTC is a libnvrtc.so.12 or .13 (pip install nvidia-cuda-nvrtc-cu12), TARGET a virtual architecture (compute_80), FOLDER where the
.ptx files go (this one). The files in git were made by NVRTC 12.8 for compute_80; any version and target that it knows will do.
"""
import ctypes
import pathlib
import sys


def compile(nvrtc, source, target, options=()):
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None)
    words = [f"--gpu-architecture={target}".encode(), *[o.encode() for o in options]]
    status = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if status:
        sys.exit(f"{source}: {log.value.decode()}")
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    cubin = b""
    if target.startswith("sm_"):
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, code)
        cubin = code.raw
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin + text.value


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    here = pathlib.Path(__file__).parent
    nvrtc = ctypes.CDLL(sys.argv[1])
    target = sys.argv[2] if len(sys.argv) > 2 else "compute_80"
    folder = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else here
    if folder.suffix == ".cubin":
        folder.write_bytes(compile(nvrtc, here / (folder.stem + ".cu"), target, sys.argv[4:]) + b"\0")
        return
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(here.glob("*.cu")):
        text = compile(nvrtc, source, target, sys.argv[4:])
        (folder / (source.stem + ".ptx")).write_bytes(text)


main()
