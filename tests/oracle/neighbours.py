#!/usr/bin/env python3
"""What a sequence becomes does not depend on its neighbours: neighbours.c on every tiny model, in float32 and bfloat16.

    neighbours.py TOOL ASSETS DEVICE [MODEL...]

On the CPU also with every HONE_ISA. Left out are models that are only trained with an adapter, and those with layers of the gated
delta rule, whose chunks begin at multiples of 64 slots. Seen to fail with tiles of keys that begin at the lowest key that a tile
of queries sees, with matmuls that leave few rows to oneDNN (tiny-gemma3 with HONE_ISA=avx2),
and in float32 with a head over few rows that takes the products of decoding.
"""
import json
import os
import subprocess
import sys

TOOL, ASSETS, DEVICE = sys.argv[1:4]
MODELS = os.path.join(ASSETS, "models")
LEFT_OUT = ("gpt_oss", "qwen3_5")
ISAS = ("plain", "avx2", "avx512", "avx512_bf16", "amx")
NO_BFLOAT16 = "there are no matmuls of bfloat16"


def is_left_out(name):
    with open(os.path.join(MODELS, name, "config.json"), encoding="utf-8") as file:
        return json.load(file)["model_type"].startswith(LEFT_OUT)


def check(name, dtype, isa=None):
    environment = dict(os.environ, **({"HONE_ISA": isa} if isa else {}))
    ran = subprocess.run([TOOL, os.path.join(MODELS, name), DEVICE, dtype, "batch"], env=environment, capture_output=True, text=True)
    ok = ran.returncode == 0 or (isa and NO_BFLOAT16 in ran.stdout)
    print(f"{'ok' if ok else 'FAILED'}: {name}{', ' + isa if isa else ''}: {(ran.stdout + ran.stderr).strip()}")
    return ok


names = sys.argv[4:] or [name for name in sorted(os.listdir(MODELS))
                         if name.startswith("tiny-") and not name.endswith(".part") and not is_left_out(name)]
cases = [(name, dtype, None) for name in names for dtype in ("float32", "bfloat16")]
if DEVICE == "cpu":
    cases += [(name, dtype, isa) for name in ("tiny-llama", "tiny-gemma3") for dtype in ("float32", "bfloat16") for isa in ISAS]
if not names:
    sys.exit(f"no tiny models in {MODELS}")
sys.exit(not all([check(*case) for case in cases]))
