"""--dry-run: everything is checked and said, and nothing is written."""
import json
import os
import shutil

from case import CHAT, TINY, Case, main, run
from hub import NAME, Hub


def listing(folder):
    """Every path below a folder with its bytes, except caches."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
            for p in sorted(folder.rglob("*")) if "cache" not in p.relative_to(folder).parts}


class Dry(Case):
    def setUp(self):
        super().setUp()
        self.data = self.write("chats.jsonl", *[CHAT] * 8)
        self.line = ("train", "--model", TINY, "--data", self.data, "--max-steps", 4, "--save-steps", 2)

    def test_a_run_is_checked_and_nothing_is_written(self):
        before = listing(self.dir)
        out = self.dir / "a/b/out"
        text = self.ok(*self.line, "--output", out, "--val-set-size", 2, "--dry-run", "--on-finish", f"touch {self.dir}/finished")
        for words in ("8 rows", "4 steps", "planned", f"would write {out}/adapter_model.safetensors", "are free", "nothing was trained"):
            self.assertIn(words, text)
        self.assertEqual(listing(self.dir), before)
        full = self.ok(*self.line, "--output", out, "--finetuning-type", "full", "--dry-run")
        self.assertIn(f"{out}/model.safetensors", full)

    def test_its_json_says_what_the_run_will_be(self):
        out = self.dir / "out"
        dry = json.loads(self.ok(*self.line, "--output", out, "--dry-run", "--json"))
        self.assertFalse(out.exists())
        real = json.loads(self.ok(*self.line, "--output", out, "--json"))
        for key in ("planned_bytes", "trainable_parameters", "micro_batch_tokens", "steps_per_epoch", "output", "data"):
            self.assertEqual(dry[key], real[key], key)
        self.assertEqual((dry["planned_steps"], dry["steps"], dry["dry_run"]), (4, 0, True))
        written = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
        self.assertGreater(dry["disk_bytes"], written * 0.9)
        self.assertLess(dry["disk_bytes"], written * 3)
        self.assertAlmostEqual(dry["disk_free_bytes"], shutil.disk_usage(self.dir).free, delta=1 << 30)

    def test_what_it_finds_in_the_output_stays(self):
        out = self.dir / "out"
        self.ok(*self.line, "--output", out)
        shutil.rmtree(out / "checkpoint-4")
        before = listing(self.dir)
        self.assertIn(f"resumed     from {out}/checkpoint-2, after 2 of 4 steps", self.ok(*self.line, "--output", out, "--dry-run"))
        result = run(*self.line, "--output", out, "--resume", "none", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("would be moved to", result.stderr)
        self.fails(2, *self.line, "--output", out, "--dry-run", "--seed", 7, says=["seed 42", "--resume none"])
        self.assertEqual(listing(self.dir), before)

    def test_a_pull_lists_what_it_would_download(self):
        with Hub({p.name: p.read_bytes() for p in TINY.iterdir() if p.is_file()}) as hub:
            home = self.dir / "hf"
            here = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": hub.url, "no_proxy": "*"}
            line = ("pull", NAME)
            text = run(*line, "--dry-run", env=here)
            self.assertEqual(text.returncode, 0, text.stderr)
            self.assertRegex(text.stdout, r"would be downloaded\n")
            self.assertIn("model.safetensors\n", text.stdout)
            dry = json.loads(run(*line, "--dry-run", "--json", env=here).stdout)
            self.assertFalse(home.exists())
            real = json.loads(run(*line, "--json", env=here).stdout)
            self.assertEqual((dry["files"], dry["bytes"], dry["missing_bytes"]), (real["files"], real["bytes"], real["downloaded_bytes"]))
            self.assertEqual((dry["path"], dry["downloaded_bytes"]), (real["path"], 0))
            self.assertEqual(json.loads(run(*line, "--dry-run", "--json", env=here).stdout)["missing_bytes"], 0)
            out = self.dir / "a/model"
            self.assertEqual(run(*line, "--dry-run", "--output", out, env=here).returncode, 0)
            self.assertFalse(out.parent.exists())

    def test_init_prints_what_it_would_write(self):
        line = ("init", "--model", TINY, "--data", self.data)
        file = self.dir / "run.yaml"
        text = self.ok(*line, "--output", file, "--dry-run")
        self.assertFalse(file.exists())
        self.ok(*line, "--output", file)
        def values(yaml):                                       # comments say how much memory is free now
            return [row for row in yaml.splitlines() if not row.startswith("#")]
        self.assertEqual(values(text), values(file.read_text()))
        self.assertIn("# Written by hone init.", text)
        before = file.read_bytes()
        self.ok(*line, "--output", file, "--dry-run")           # one that is there stays, and is no error
        self.assertEqual(file.read_bytes(), before)

    def test_what_would_stop_a_run_stops_it(self):
        self.write("file", "x")
        self.fails(3, *self.line, "--output", self.dir / "file/out", "--dry-run", says=["file", "there is a file of this name"])
        self.fails(2, *self.line, "--output", TINY, "--dry-run", says=["the model's own directory"])
        self.fails(2, *self.line, "--dry-run", says=["--output DIR"])
        self.fails(9, *self.line, "--output", self.dir / "out", "--max-length", 10, "--dry-run", says=["--excess-length"])
        if os.geteuid():
            closed = self.dir / "closed"
            closed.mkdir(mode=0o500)
            self.fails(3, *self.line, "--output", closed / "out", "--dry-run", says=["cannot write", "chmod"])
        self.assertFalse((self.dir / "out").exists())

    def adapter(self):
        self.ok(*self.line, "--output", self.dir / "adapter")
        return ("--model", TINY, "--adapter", self.dir / "adapter")

    def test_exports_have_the_files_and_sizes_that_were_said(self):
        pair, base = self.adapter(), ("--model", TINY)
        for number, (command, name, *rest) in enumerate([
                ("merge", "merged", *pair), ("merge", "merged-f32", *pair, "--type", "f32"), ("merge", "m.gguf", *pair, "--type", "q4_k_m"),
                ("merge", "deep/er/m.gguf", *pair), ("quantize", "q.gguf", *base, "--type", "q8_0"), ("quantize", "f16.gguf", *base, "--type", "f16"),
                ("export", "peft", *pair), ("export", "peft-bf16", *pair, "--type", "bf16"), ("export", "a.gguf", *pair)]):
            before, out = listing(self.dir), self.dir / name
            line = (command, "--output", out, *rest, "--json")
            dry = json.loads(self.ok(*line, "--dry-run"))
            self.assertEqual(listing(self.dir), before, name)
            real = json.loads(self.ok(*line))
            new = {str(self.dir / n): len(b) for n, b in listing(self.dir).items() if n not in before and b is not None}
            self.assertEqual({f["name"]: f["bytes"] for f in dry["files"]}, new, name)          # to the byte
            self.assertEqual(dry["bytes"], sum(new.values()))
            for key in ("output", "format", "type", "files", "bytes"):
                self.assertEqual(dry[key], real[key], key)
            if command != "export":
                self.assertEqual([(t["type"], t["tensors"], t["bytes"]) for t in dry["types"]],
                                 [(t["type"], t["tensors"], t["bytes"]) for t in real["types"]])
            self.assertEqual((dry["dry_run"], real["dry_run"], dry["replaces"]), (True, False, False))
            self.assertNotIn("tensor_error", dry)
            self.assertAlmostEqual(dry["disk_free_bytes"], shutil.disk_usage(self.dir).free, delta=1 << 30)
        before = listing(self.dir)
        text = self.ok("merge", "--output", self.dir / "merged", *pair, "--overwrite", "--dry-run")
        for words in ("would replace what is there by", "are free\n", f"{self.dir}/merged/model.safetensors\n", "nothing was written"):
            self.assertIn(words, text)
        self.assertEqual(listing(self.dir), before)

    def test_a_merge_says_what_rounding_leaves_and_what_helps(self):
        """Before: "rounding lost 88.6% of the adapter's change", and no way out."""
        pair = self.adapter()
        said = self.ok("merge", *pair, "--output", self.dir / "m.gguf", "--type", "q4_k_m")
        for words in ("of the adapter's change is in it, and rounding adds noise", "times as large", "write --type f32 (or f16), train for longer"):
            self.assertIn(words, said)
        said = self.ok("merge", *pair, "--output", self.dir / "whole", "--type", "f32")
        self.assertIn("all of the adapter's change is in it\n", said)
        self.assertNotIn("train for longer", said)

    def test_what_would_stop_an_export_stops_it(self):
        pair, new = self.adapter(), self.dir / "new"
        self.write("file", "x")
        self.ok("merge", *pair, "--output", self.dir / "there")
        before = listing(self.dir)
        self.fails(2, "merge", *pair, "--output", self.dir / "there", "--dry-run", says=["exists", "--overwrite"])
        self.fails(2, "merge", *pair, "--output", TINY, "--overwrite", "--dry-run", says=["must not be what is read"])
        self.fails(2, "merge", *pair, "--output", new, "--type", "q8_0", "--dry-run", says=["ends in .gguf"])
        self.fails(2, "export", *pair, "--output", f"{new}.gguf", "--type", "q8_0", "--dry-run", says=["f32, f16 or bf16"])
        self.fails(2, "quantize", "--model", TINY, "--output", new, "--dry-run", says=["FILE.gguf"])
        self.fails(3, "quantize", "--model", TINY, "--output", self.dir / "file/new.gguf", "--dry-run", says=["there is a file of this name"])
        self.fails(3, "merge", "--model", TINY, "--adapter", self.dir / "none", "--output", new, "--dry-run", says=["none"])
        if os.geteuid():
            closed = self.dir / "closed"
            closed.mkdir(mode=0o500)
            self.fails(3, "merge", *pair, "--output", closed / "new", "--dry-run", says=["cannot write"])
            closed.rmdir()
        self.assertEqual(listing(self.dir), before)

    def test_numbers_that_are_none_are_found(self):
        pair = self.adapter()
        path = self.dir / "adapter/adapter_model.safetensors"
        data = bytearray(path.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        data[begin:] = b"\xff\xff\xff\x7f" * ((len(data) - begin) // 4)                     # NaN
        path.write_bytes(data)
        before = listing(self.dir)
        for command, name in (("merge", "m.gguf"), ("merge", "merged"), ("export", "a.gguf"), ("export", "copied")):
            line = (command, *pair, "--output", self.dir / name)
            dry = self.fails(4, *line, "--dry-run", says=["has NaN at element 0"])
            if name == "a.gguf":
                self.assertEqual(dry, self.fails(4, *line))
        self.assertEqual(listing(self.dir), before)


main(Dry, Dry)
