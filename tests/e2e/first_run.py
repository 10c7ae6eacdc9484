#!/usr/bin/env python3
"""The script of docs/gpu-first-run.md, on the simulator with a tiny model: all steps are there, and one file has what they said.

    first_run.py HONE ASSETS DATA

Seen to fail with chats that are longer than the model's window: the steps that train were WRONG; with "ERROR SUMMARY" expected of
racecheck, which ends with another line.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tarfile

from case import HONE, TINY, Case, main

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/gpu-first-run.py"
STEPS = ["machine", "devices", "ops forward", "ops gradient", "LoRA float32", "LoRA bfloat16", "QLoRA float32", "full float32", "generate",
         "the same bytes", "what a step does", "where time goes", "speed", "plan", "compute-sanitizer memcheck",
         "compute-sanitizer racecheck", "compute-sanitizer initcheck", "compute-sanitizer synccheck"]


# What NVIDIA's compute-sanitizer says at its end if it has found nothing, or something.
SANITIZER = """#!/bin/sh
case "$2" in
racecheck) echo "========= RACECHECK SUMMARY: $FOUND hazards displayed ($FOUND errors, 0 warnings)" ;;
*) echo "========= ERROR SUMMARY: $FOUND errors" ;;
esac
"""


class FirstRun(Case):
    def test_each_tool_of_the_sanitizer_ends_in_its_own_words(self):
        spec = importlib.util.spec_from_file_location("script", SCRIPT)
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        stand_in = self.dir / "compute-sanitizer"
        stand_in.write_text(SANITIZER)
        stand_in.chmod(0o755)
        os.environ["PATH"] = f"{self.dir}:{os.environ['PATH']}"
        args = argparse.Namespace(build=pathlib.Path(HONE).parent, device="cuda", model=TINY, timeout=60)
        run = script.Run(args, self.dir)
        for tool in script.TOOLS:
            os.environ["FOUND"] = "0"
            self.assertEqual(run.sanitizer(tool), "0 errors")
            os.environ["FOUND"] = "3"
            with self.assertRaises(script.Wrong):
                run.sanitizer(tool)

    def script(self, *args):
        packed = self.dir / "packed.tar.gz"
        done = subprocess.run([sys.executable, SCRIPT, "--model", TINY, "--build", pathlib.Path(HONE).parent, "--output", packed, "--small", *args],
                              capture_output=True, text=True, timeout=3000, check=False)
        with tarfile.open(packed) as tar:
            inside = {name: tar.extractfile(name).read().decode() for name in tar.getnames()}
        return done, inside, json.loads(inside["gpu-first-run/table.json"])

    def test_all_steps_run_and_are_packed(self):
        done, inside, table = self.script()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([row["step"] for row in table], STEPS)
        self.assertTrue(all(row["result"] == "ok" for row in table), table)
        said = "".join(inside.values())
        for words in ("hone 0.", "cudasim", "kernel ", " is loaded", "rmsnorm"):
            self.assertIn(words, said)
        self.assertFalse([name for name in inside if name.endswith((".safetensors", ".kernel"))])

    def test_a_step_that_fails_is_told_and_the_rest_runs(self):
        done, inside, table = self.script("--device", "cuda:7", "--timeout", "60")
        self.assertEqual(done.returncode, 1)
        wrong = {row["step"]: row["said"] for row in table if row["result"] == "WRONG"}
        self.assertIn("LoRA float32", wrong)
        self.assertIn("there is no device cuda:7", wrong["LoRA float32"])
        self.assertIn("machine", [row["step"] for row in table if row["result"] == "ok"])
        self.assertTrue(any("there is no device cuda:7" in text for text in inside.values()))


if __name__ == "__main__":
    main(FirstRun, None)
