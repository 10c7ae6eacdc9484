#!/usr/bin/env python3
"""Every kind of instructions that this processor has, by HONE_ISA.

    isa.py HONE ASSETS DATA

Seen to fail: threads, with columns of a panel cut by their number; the frozen base, with its weights rounded once more.
"""
import json
import os
import subprocess

from case import HONE, SANITIZED, TINY, Case, main, tensors
from train_chats import chat

ISAS = ("plain", "avx2", "avx512", "avx512_bf16", "amx")


def hone(isa, *args):
    return subprocess.run([HONE, *map(str, args)], capture_output=True, text=True, timeout=300, env={**os.environ, "HONE_ISA": isa})


def usable():
    """Those that HONE_ISA may ask for here."""
    return [isa for isa in ISAS if '"usable": true, "name"' in json.dumps(device(isa))]


def device(isa):
    r = hone(isa, "devices", "--json")
    return next(d for d in json.loads(r.stdout)["devices"] if d["device"] == "cpu")


class Isa(Case):
    def train(self, isa, out, threads, dtype, model=TINY):
        data = self.write("chats.jsonl", *[chat(i) for i in range(8)])
        r = hone(isa, "train", "--model", model, "--data", data, "--output", self.dir / out, "--max-steps", 3, "--device", "cpu",
                 "--threads", threads, "--dtype", dtype, "--learning-rate", 0.003, "--save-steps", 0, "--cache-dir", self.dir / "tokens")
        self.assertEqual(r.returncode, 0, r.stderr)
        losses = [json.loads(line).get("loss") for line in (self.dir / out / "metrics.jsonl").read_text().splitlines()]
        return tensors(self.dir / out / "adapter_model.safetensors"), [loss for loss in losses if loss is not None]

    def test_devices_names_what_is_used_and_a_limit_above_it_fails(self):
        there = usable()
        self.assertIn("plain", there)
        called = [device(isa)["instructions"] for isa in there]
        self.assertEqual(len(set(called)), len(there), called)
        self.assertEqual([device(isa)["bfloat16"] for isa in there], [isa in ("avx512_bf16", "amx") for isa in there])
        for isa in [isa for isa in ISAS if isa not in there]:
            self.assertIn("this processor has", device(isa)["why"])
        self.assertIn("HONE_ISA=avx1024: it is one of", device("avx1024")["why"])
        text = hone("plain", "devices").stdout
        self.assertRegex(text, r"cpu +.*: \d+ threads, SSE2, has ")

    def test_a_run_has_the_same_bytes_by_1_2_and_4_threads_on_each(self):
        first = None
        for isa in usable():
            for dtype in ("float32", "bfloat16") if isa not in ("plain", "avx2") else ("float32",):
                one, losses = self.train(isa, f"{isa}-{dtype}-1", 1, dtype)
                for threads in () if SANITIZED else (2, 4):
                    more, _ = self.train(isa, f"{isa}-{dtype}-{threads}", threads, dtype)
                    self.assertEqual(one, more, f"{isa}, {dtype}, {threads} threads")
                first = first or losses
                for a, b in zip(first, losses):
                    self.assertAlmostEqual(a, b, delta=(1e-5 if dtype == "float32" else 0.03) * a, msg=f"{isa} {dtype}")

    def test_a_frozen_bfloat16_base_gives_the_losses_of_its_widened_weights(self):
        """Trained, and decoded a token at a time. The base stays in its file."""
        narrow_model, wide = self.models()
        for isa in [isa for isa in usable() if isa in ("avx2", "avx512")]:
            _, narrow = self.train(isa, f"narrow-{isa}", 2, "float32", narrow_model)
            _, widened = self.train(isa, f"wide-{isa}", 2, "float32", wide)
            plan = json.loads(hone(isa, "plan", "--model", narrow_model, "--dtype", "float32", "--device", "cpu", "--json").stdout)
            self.assertIn("weights in mapped files", [row["block"] for row in plan["table"]])
            self.assertLess(plan["bits_per_weight"], 17)
            for a, b in zip(narrow, widened, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-6 * b)
            said = [hone(isa, "generate", "--model", model, "--raw", "--prompt", "The package", "--max-new-tokens", 24, "--device", "cpu",
                         "--dtype", "float32") for model in (narrow_model, wide)]
            self.assertEqual([r.returncode for r in said], [0, 0], said)
            self.assertEqual(said[0].stdout, said[1].stdout)

    def models(self):
        """TINY's numbers in bfloat16, and these in float32."""
        folders = self.dir / "narrow", self.dir / "wide"
        for folder, dtype, name, size in zip(folders, ("bfloat16", "float32"), ("BF16", "F32"), (2, 4)):
            folder.mkdir()
            for path in TINY.iterdir():
                if path.suffix != ".safetensors":
                    (folder / path.name).write_bytes(path.read_bytes())
            config = json.loads((folder / "config.json").read_text())
            config["dtype" if "dtype" in config else "torch_dtype"] = dtype
            (folder / "config.json").write_text(json.dumps(config))
            header, content = {}, b""
            for tensor, (_, shape, data) in sorted(tensors(TINY / "model.safetensors").items()):
                numbers = b"".join((bytes(2) + data[i + 2:i + 4])[4 - size:] for i in range(0, len(data), 4))
                header[tensor] = {"dtype": name, "shape": shape, "data_offsets": [len(content), len(content) + len(numbers)]}
                content += numbers
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content)
        return folders


main(Isa, Isa)
