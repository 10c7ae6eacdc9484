#!/usr/bin/env python3
"""An adapter and its base: which weights it was trained on, what is done on others, and commands that are given only the adapter.

    bases.py HONE ASSETS DATA
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from case import ASSETS, CHAT, HONE, TINY, Case, main, run, tensors

KEYS = {"hone_base_form", "hone_base_sketch", "hone_base_weights"}


def other_numbers(model, first):
    """Another number in each matrix: its first, which a sketch sees, or its last, which only all of them show."""
    file = model / "model.safetensors"
    content = bytearray(file.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    for name, t in header.items():
        if name != "__metadata__" and len(t["shape"]) == 2:
            content[begin + (t["data_offsets"][0] if first else t["data_offsets"][1] - 2)] ^= 1
    file.write_bytes(content)


def metadata(adapter):
    content = (adapter / "adapter_model.safetensors").read_bytes()
    return json.loads(content[8:8 + int.from_bytes(content[:8], "little")])["__metadata__"]


def forget(adapter, model=None):
    """An adapter as PEFT writes it: it has only the name of its base."""
    for name in ("checksums.xxh128", "provenance.json"):
        (adapter / name).unlink(missing_ok=True)
    file = adapter / "adapter_model.safetensors"
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin]) | {"__metadata__": {"format": "pt"}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | ({"base_model_name_or_path": str(model)} if model else {})))


class Bases(Case):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.made = pathlib.Path(cls.kept.name)
        cls.data = cls.made / "chats.jsonl"
        cls.data.write_text((json.dumps(CHAT) + "\n") * 4)
        cls.base, cls.other, cls.tail = (shutil.copytree(TINY, cls.made / name) for name in ("base", "other", "tail"))
        other_numbers(cls.other, True)
        other_numbers(cls.tail, False)
        cls.adapter = cls.made / "out"
        cls.train("--model", cls.base, "--output", cls.adapter, "--save-steps", 1)

    @classmethod
    def train(cls, *args):
        done = run("train", "--data", cls.data, "--max-steps", 2, *args)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    uses_made = 0

    def uses(self, adapter):
        """The commands that take an adapter, without a model: which read only the sketch, and which all weights."""
        self.uses_made += 1
        into = self.dir / f"into-{self.uses_made}"
        quick = (("generate", "--adapter", adapter, "--prompt", "Hi", "--max-new-tokens", 2), ("chat", "--adapter", adapter),
                 ("eval", "--adapter", adapter, "--data", self.data))
        whole = (("merge", "--adapter", adapter, "--output", f"{into}.gguf"), ("export", "--adapter", adapter, "--output", f"{into}-a"),
                 ("merge", "--adapter", adapter, "--output", f"{into}-dry.gguf", "--dry-run"),
                 ("train", "--init-adapter", adapter, "--data", self.data, "--max-steps", 1, "--output", f"{into}-run"))
        return quick, whole

    def ask(self, *args):
        return run(*args, stdin=subprocess.DEVNULL)

    def goes(self, *args):
        result = self.ask(*args)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line for line in result.stderr.splitlines() if line.startswith("hone: ")]

    def refused(self, *args):
        result = self.ask(*args)
        self.assertEqual(result.returncode, 2, (args, result.stdout, result.stderr))
        said = [line for line in result.stderr.splitlines() if line.startswith("hone: ")]
        self.assertEqual(len(said), 1, said)
        for words in ("has other weights than the adapter was trained on", str(self.base), "--model", "--any-base"):
            self.assertIn(words, said[0])

    # --- what an adapter says -------------------------------------------------------------------------------------------------

    def test_an_adapter_and_its_checkpoints_have_the_digests_of_their_base(self):
        """Fails if results do not say on which numbers they were trained, or PEFT's own keys gain others."""
        digests = metadata(self.adapter)
        self.assertEqual(set(digests), {"format"} | KEYS)
        self.assertEqual(digests, metadata(self.adapter / "checkpoint-1"))
        origin = json.loads((self.adapter / "provenance.json").read_text())["made_from"]["model"]
        self.assertEqual(digests["hone_base_weights"], origin["weights_xxh128"])
        self.assertFalse({k for k in json.loads((self.adapter / "adapter_config.json").read_text()) if "base" in k} - {"base_model_name_or_path"})
        self.goes("export", "--model", self.base, "--adapter", self.adapter, "--output", self.dir / "taken")
        self.assertEqual(metadata(self.dir / "taken"), digests)

    def test_peft_loads_it_without_a_word(self):
        script = """if True:
            import sys, warnings
            warnings.simplefilter("error", UserWarning)
            import peft, transformers
            config = peft.LoraConfig.from_pretrained(sys.argv[2])
            model = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]), sys.argv[2])
            print(config.r, sum(v.abs().sum().item() > 0 for k, v in model.state_dict().items() if "lora_B" in k))"""
        result = subprocess.run([ASSETS / "venv/bin/python", "-c", script, self.base, self.adapter], capture_output=True, text=True,
                                env={**os.environ, "HF_HUB_OFFLINE": "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        trained = sum("lora_B" in name for name in tensors(self.adapter / "adapter_model.safetensors"))
        self.assertEqual(result.stdout.split(), ["16", str(trained)])

    def test_an_interrupted_run_gives_the_same_bytes(self):
        out = self.dir / "again"
        shutil.copytree(self.adapter / "checkpoint-1", out / "checkpoint-1")
        self.train("--model", self.base, "--output", out, "--save-steps", 1)
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            self.assertEqual((out / name).read_bytes(), (self.adapter / name).read_bytes(), name)

    # --- another base ---------------------------------------------------------------------------------------------------------

    def test_its_own_base_is_taken_wherever_it_lies(self):
        moved = shutil.copytree(self.base, self.dir / "moved")
        for command in sum(self.uses(self.adapter), ()):
            self.assertEqual(self.goes(*command, "--model", moved), [], command)

    def test_other_numbers_of_the_same_form_are_refused(self):
        """Fails if any command uses an adapter on weights that it was not trained on, and says nothing."""
        for command in sum(self.uses(self.adapter), ()):
            with self.subTest(command[0]):
                self.refused(*command, "--model", self.other)
        self.assertEqual([p.name for p in self.dir.glob("into-*") if not p.name.endswith("-run")], [])

    def test_a_flag_takes_them(self):
        for command in sum(self.uses(self.adapter), ()):
            self.assertEqual(self.goes(*command, "--model", self.other, "--any-base"), [], command)

    def test_a_run_on_another_base_says_that_its_result_is_of_that_one(self):
        out = self.dir / "out"
        self.train("--model", self.other, "--init-adapter", self.adapter, "--any-base", "--output", out)
        self.goes("merge", "--model", self.other, "--adapter", out, "--output", self.dir / "merged")
        self.assertIn(f"{self.other}", self.ask("generate", out, "--prompt", "Hi").stderr)
        self.assertEqual(self.ask("merge", "--model", self.base, "--adapter", out, "--output", self.dir / "wrong").returncode, 2)

    def test_a_change_that_a_sketch_does_not_see_is_found_by_what_writes(self):
        quick, whole = self.uses(self.adapter)
        for command in quick:
            self.assertEqual(self.goes(*command, "--model", self.tail), [], command)
        for command in whole:
            with self.subTest(command[0]):
                self.refused(*command, "--model", self.tail)

    def test_another_form_of_the_base_is_a_warning(self):
        """A GGUF file and the directory that it was made from. Fails if it is refused, or said nothing of."""
        file, out = self.dir / "base.gguf", self.dir / "out"
        self.ok("quantize", "--model", self.base, "--output", file)
        self.train("--model", file, "--output", out)
        for command in sum(self.uses(out), ()):
            said = self.goes(*command, "--model", self.base)
            self.assertEqual(len(said), 1, (command, said))
            self.assertIn(f"was trained on {file}, whose weights were stored in another form", said[0])
        for command in sum(self.uses(out), ()):
            self.assertEqual(self.goes(*command, "--model", file), [], command)

    def test_without_digests_the_names_are_compared(self):
        old = shutil.copytree(self.adapter, self.dir / "old")
        forget(old)
        for name in (self.base, "somebody/BASE"):
            forget(old, name)
            for command in sum(self.uses(old), ()):
                self.assertEqual(self.goes(*command, "--model", self.base), [], command)
            for command in sum(self.uses(old), ()):
                said = self.goes(*command, "--model", self.other)
                self.assertEqual(len(said), 1, (command, said))
                self.assertIn(f"was made for a model called {name}, and has no digest", said[0])

    # --- only the adapter -----------------------------------------------------------------------------------------------------

    def test_an_adapter_is_enough(self):
        """Its base is where adapter_config.json says, also if the adapter was moved. Fails if a command still asks for --model."""
        moved = shutil.copytree(self.adapter, self.dir / "elsewhere/moved")
        answer = self.ok("generate", "--model", self.base, "--adapter", self.adapter, "--prompt", "Hi", "--max-new-tokens", 4)
        self.assertEqual(self.ok("generate", moved, "--prompt", "Hi", "--max-new-tokens", 4), answer)
        self.assertEqual(self.ok("generate", "--adapter", moved, "--prompt", "Hi", "--max-new-tokens", 4), answer)
        self.assertEqual(self.ok("generate", moved / "checkpoint-2", "--prompt", "Hi", "--max-new-tokens", 4), answer)
        said = self.ask("eval", moved, "--data", self.data)
        self.assertIn(f"the model is {self.base}, the base of {moved}\n", said.stderr)
        for name in ("x.gguf", "merged"):
            self.ok("merge", moved, "--output", self.dir / name)
        self.ok("export", moved, "--output", self.dir / "a.gguf")
        self.ok("generate", "--model", self.dir / "merged", "--prompt", "Hi", "--max-new-tokens", 4)

    def test_a_chat_needs_no_model_and_keeps_it(self):
        lines = f"Hi\n/adapter none\nHi\n/adapter {self.adapter}\nHi\n"
        alone, both = (subprocess.run([HONE, "chat", "--max-new-tokens", "4", *map(str, words)], input=lines, capture_output=True, text=True)
                       for words in ((self.adapter,), ("--model", self.base, "--adapter", self.adapter)))
        self.assertEqual((alone.returncode, both.returncode), (0, 0), alone.stderr + both.stderr)
        self.assertEqual(alone.stdout, both.stdout)

    def test_a_relative_path_is_taken_as_it_was_written(self):
        there = self.dir / "there"
        there.mkdir()
        shutil.copytree(self.base, there / "model")
        line = ["train", "--model", "model", "--data", self.data, "--max-steps", 1, "--output", "out"]
        self.assertEqual(run(*line, cwd=there).returncode, 0)
        self.assertEqual(run("generate", "out", "--prompt", "Hi", cwd=there).returncode, 0)
        (there / "out").rename(self.dir / "out")
        self.assertEqual(run("generate", "../out", "--prompt", "Hi", cwd=there).returncode, 0)
        result = run("generate", "out", "--prompt", "Hi", cwd=self.dir)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("its base is model by adapter_config.json, and that is not here: name it with --model", result.stderr)

    def test_a_name_of_the_hub_is_looked_for_in_the_cache(self):
        adapter = shutil.copytree(self.adapter, self.dir / "adapter")
        forget(adapter, "org/tiny")
        cache = self.dir / "hub"
        here = {"env": {**os.environ, "HF_HUB_CACHE": str(cache)}}
        result = run("generate", adapter, "--prompt", "Hi", **here)
        self.assertEqual(result.returncode, 3)
        for words in ("its base is org/tiny", str(cache), "name it with --model", "`hone pull org/tiny`"):
            self.assertIn(words, result.stderr)
        snapshot = cache / "models--org--tiny/snapshots" / ("0" * 40)
        shutil.copytree(self.base, snapshot)
        (cache / "models--org--tiny/refs").mkdir()
        (cache / "models--org--tiny/refs/main").write_text("0" * 40)
        result = run("generate", adapter, "--prompt", "Hi", **here)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the model is org/tiny, the base of", result.stderr)
        self.assertNotIn("warning", result.stderr)                        # the name is the one that it says
        self.assertNotIn("warning", run("generate", "--model", snapshot, "--adapter", adapter, "--prompt", "Hi", **here).stderr)


main(Bases, Bases)
