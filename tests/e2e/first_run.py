#!/usr/bin/env python3
"""The script of docs/gpu-first-run.md, on the simulator with a tiny model: all steps are there, and one file has what they said.

    first_run.py HONE ASSETS DATA

Seen to fail with chats that are longer than the model's window: the steps that train were WRONG.
"""
import json
import pathlib
import subprocess
import sys
import tarfile

from case import HONE, TINY, Case, main

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/gpu-first-run.py"
STEPS = ["machine", "devices", "ops forward", "ops gradient", "LoRA float32", "LoRA bfloat16", "QLoRA float32", "full float32", "generate",
         "the same bytes", "what a step does", "where time goes", "speed", "plan", "compute-sanitizer memcheck",
         "compute-sanitizer racecheck", "compute-sanitizer initcheck", "compute-sanitizer synccheck"]


class FirstRun(Case):
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
