"""Checkpoints and adapters that are damaged or contradict themselves: every command that would use one refuses it by name."""
import json
import math
import pathlib
import shutil
import struct
import tempfile

from case import CHAT, TINY, Case, forge_checksums, main, run, tensors


def flip(file):
    """Another bit in the last number but one."""
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)


def put_tensors(file, all_of_them):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in all_of_them.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


class Adapters(Case):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.made = pathlib.Path(cls.kept.name)
        data = cls.made / "chats.jsonl"
        data.write_text((json.dumps(CHAT) + "\n") * 4)
        for kind in ("lora", "full"):
            done = run("train", "--model", TINY, "--data", data, "--output", cls.made / kind, "--finetuning-type", kind,
                       "--max-steps", 1)
            assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def setUp(self):
        super().setUp()
        self.data, self.out = self.made / "chats.jsonl", self.dir / "out"
        self.adapter = shutil.copytree(self.made / "lora/checkpoint-1", self.dir / "adapter")
        self.model = shutil.copytree(self.made / "full/checkpoint-1", self.dir / "model")

    def change(self, **keys):
        """Other keys in the adapter's configuration, as of an adapter that is no checkpoint."""
        (self.adapter / "checksums.xxh128").unlink(missing_ok=True)
        file = self.adapter / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | keys))

    def with_adapter(self, base=TINY):
        """The commands that use one."""
        model = "--model", base, "--adapter", self.adapter
        yield "eval", *model, "--data", self.data
        yield "generate", *model, "--prompt", "Hi", "--max-new-tokens", 1
        yield "merge", *model, "--output", self.out
        yield "export", *model, "--output", self.out
        yield "export", *model, "--output", f"{self.out}.gguf"
        yield "export", *model, "--output", f"{self.out}.gguf", "--dry-run"

    def refused(self, code, command, says):
        self.assertIn(says, self.fails(code, *command))
        self.assertEqual([p.name for p in self.dir.glob("out*")], [], command)

    def test_a_damaged_checkpoint_is_not_used_as_an_adapter(self):
        """Fails if weights are taken as they are, though the checksums next to them tell that they changed."""
        flip(self.adapter / "adapter_model.safetensors")
        train = "train", "--model", TINY, "--init-adapter", self.adapter, "--data", self.data, "--max-steps", 1, "--output", self.dir / "run"
        for command in (*self.with_adapter(), train):
            self.refused(4, command, "adapter/adapter_model.safetensors: is damaged: its bytes are not those that were written; take the "
                                     "checkpoint before it")
        result = run("inspect", "adapter", self.adapter, "--json")
        report = json.loads(result.stdout)
        self.assertEqual((result.returncode, report["whole"], report["rank"]), (4, False, 16))
        self.assertIn("is damaged", result.stderr)

    def test_a_damaged_checkpoint_is_not_used_as_a_model(self):
        model = "--model", self.model
        flip(self.model / "model.safetensors")
        for command in (("eval", *model, "--data", self.data), ("generate", *model, "--prompt", "Hi"),
                        ("quantize", *model, "--output", f"{self.out}.gguf"),
                        ("train", *model, "--data", self.data, "--max-steps", 1, "--output", self.dir / "run")):
            self.refused(4, command, "model/model.safetensors: is damaged")
        self.ok("inspect", "model", *model)             # reads no weights, and stays quick
        self.ok("plan", *model, "--data", self.data)

    def forge(self, folder, forgeries):
        """Copies of a checkpoint whose trainer_state.json was changed, with a list of checksums that is right all the same."""
        made = []
        for i, change in enumerate(forgeries):
            made.append(shutil.copytree(folder, self.dir / f"forged-{i}/{folder.name}"))
            state = json.loads((made[-1] / "trainer_state.json").read_text())
            change(state)
            (made[-1] / "trainer_state.json").write_text(json.dumps(state, indent=2))
        forge_checksums(*made)
        return made

    def test_a_forged_checkpoint_is_not_resumed(self):
        """Its checksums hold: the forger made them. Fails if a member is missing, or lies, and the run goes on (code 0)."""
        train = "train", "--model", TINY, "--data", self.data, "--max-steps", 8, "--save-steps", 4, "--device", "cpu", "--output"
        self.ok(*train, self.dir / "run")
        last = self.dir / "run/checkpoint-4"
        state = json.loads((last / "trainer_state.json").read_text())
        forgeries = {f"{key} = {json.dumps(value)}": lambda s, key=key, value=value: s.update({key: value}) for key, value in (
            ("step", 10**9), ("step", 9), ("settings", {}), ("step", 0), ("skipped_steps", 5), ("bad_in_row", 5), ("best_step", 5), ("stale_evals", 6),
            ("warnings", 5), ("guard_loss_count", 5), ("guard_norm_count", 5), ("tokens", 10**12), ("began", -1), ("began", 10**15),
            ("guard_loss_mean", None), ("best_step", 2), ("device", 1), ("dtype", None))}
        forgeries |= {f"no {key}": lambda s, key=key: s.pop(key) for key in state}
        forgeries |= {f"no {key} of the settings": lambda s, key=key: s["settings"].pop(key) for key in list(state["settings"])[::7]}
        forgeries["a setting of nobody's"] = lambda s: s["settings"].update(future="1")
        forgeries["fewer steps than were taken"] = lambda s: s.update(step=1, tokens=0, guard_loss_count=1, guard_norm_count=1)
        for title, forged in zip(forgeries, self.forge(last, forgeries.values())):
            with self.subTest(title):
                said = self.fails(4, *train, self.dir / "again", "--resume", forged)
                self.assertIn(str(forged), said)
                self.assertIn("state.safetensors: " if title.startswith("fewer") else "trainer_state.json: ", said)
                self.assertFalse((self.dir / "again").exists())
        self.assertIn("with max_steps 8, this one has 3", self.fails(2, *train, self.dir / "again", "--resume", last, "--max-steps", 3))
        self.ok(*train, self.dir / "again", "--resume", last)

    def test_a_checkpoint_can_be_used_without_its_state(self):
        """Fails if what only resuming reads is asked for."""
        (self.adapter / "state.safetensors").unlink()
        flip(self.adapter / "trainer_state.json")
        self.ok("eval", "--model", TINY, "--adapter", self.adapter, "--data", self.data)

    def test_a_base_with_broken_files_is_not_merged(self):
        """Fails if what a result needs besides its weights is copied unread: the base's file must be named, before anything is written."""
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json", "chat_template.jinja",
                     "vocab.json"):
            for cut in (0, -20):
                base = shutil.copytree(TINY, self.dir / "base")
                file = base / name
                file.write_bytes((file.read_bytes() if file.exists() else b'{"a": 1, "b": 2, "c": 3}')[:cut])
                for more in ((), ("--dry-run",)):
                    self.refused(4, ("merge", "--model", base, "--adapter", self.adapter, "--output", self.out, *more), f"base/{name}:")
                shutil.rmtree(base)
        base = shutil.copytree(TINY, self.dir / "base")
        tokenizer = json.loads((base / "tokenizer.json").read_text())
        (base / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": {"type": "Newer"}}))
        self.ok("merge", "--model", base, "--adapter", self.adapter, "--output", self.out)      # whole, though unknown to hone

    def test_every_command_refuses_the_same_adapters(self):
        """Fails if an export to GGUF writes what no command would use: an alpha that is infinite there, or modules of another adapter."""
        self.change(lora_alpha=1e300)
        for command in self.with_adapter():
            self.refused(4, command, "an alpha of 1e+300, it must be a finite number of float32")
        self.change(lora_alpha=16, target_modules=["q_proj"])
        for command in self.with_adapter():
            self.refused(4, command, "matches no module of")
        self.change(target_modules="all-linear")
        for command in self.with_adapter():
            self.ok(*command)
            shutil.rmtree(self.out, ignore_errors=True)
            pathlib.Path(f"{self.out}.gguf").unlink(missing_ok=True)

    def add(self, base, **modules):
        """Weights of the base, or as many zeros, as the adapter's own."""
        file = self.adapter / "adapter_model.safetensors"
        of_base, own = tensors(base / "model.safetensors"), tensors(file)
        for name, value in modules.items():
            name = name.replace("__", ".")
            own[f"base_model.model.{name}.weight"] = value or of_base[f"{name}.weight"]
        put_tensors(file, own)

    def test_a_tied_embedding_is_not_taken_for_the_head(self):
        """PEFT gives the model a second matrix then. Fails if the saved embedding becomes the head too: the losses are others."""
        tied = TINY.parent / "tiny-qwen2"
        shutil.rmtree(self.adapter)
        self.ok("train", "--model", tied, "--data", self.data, "--output", self.adapter, "--max-steps", 1, "--save-steps", 0)
        self.add(tied, model__embed_tokens=None)
        self.change(modules_to_save=["embed_tokens"])
        for command in self.with_adapter(tied):
            self.refused(7, command, "whose head is its embedding: with the adapter they are two matrices")

    def test_an_adapter_without_a_module_that_it_promises_is_not_used(self):
        """PEFT raises. Fails if what "modules_to_save" names is taken from the base in silence, for one layer or all of them."""
        train = "train", "--model", TINY, "--init-adapter", self.adapter, "--data", self.data, "--max-steps", 1, "--output", self.dir / "run"
        for names, missing in ((["lm_head"], "lm_head"), (["norm"], "model.layers.0.input_layernorm"), (["score", "embed_tokens"], "model.embed_tokens")):
            self.change(modules_to_save=names)
            for command in (*self.with_adapter(), *[train] * ("norm" in names)):
                self.refused(4, command, f"there is no tensor base_model.model.{missing}.weight, which \"modules_to_save\" of adapter_config.json")
            self.assertIn(f'names "{names[0]}", and no tensor is of such a module', run("inspect", "adapter", self.adapter).stderr)
        self.change(modules_to_save=["input_layernorm"])
        self.add(TINY, model__layers__0__input_layernorm=None)
        for command in (*self.with_adapter(), train):
            self.refused(4, command, "there is no tensor base_model.model.model.layers.1.input_layernorm.weight, which \"modules_to_save\"")
        self.add(TINY, model__layers__1__input_layernorm=None)
        self.change(modules_to_save=["input_layernorm", "score"])
        result = run(*train)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('"modules_to_save" names "score", which no module of', result.stderr)

    def test_numbers_of_an_adapter_that_are_not_finite_are_named_before_the_run(self):
        """Fails if a run is begun with them: its steps are bad then, and the learning rate is blamed."""
        (self.adapter / "checksums.xxh128").unlink()
        file = self.adapter / "adapter_model.safetensors"
        whole = file.read_bytes()
        train = "train", "--model", TINY, "--init-adapter", self.adapter, "--data", self.data, "--max-steps", 1, "--output", self.dir / "run"
        for number, word in ((math.nan, "NaN"), (-math.inf, "an infinite number")):
            file.write_bytes(whole[:-4] + struct.pack("<f", number))
            for command in (*self.with_adapter(), train, (*train, "--dry-run")):
                said = self.fails(4, *command)
                self.assertIn("adapter/adapter_model.safetensors: tensor base_model.model.", said)
                self.assertIn(f"of the adapter has {word} at element", said)
                self.assertNotIn("rate", said)
        self.assertFalse((self.dir / "run").exists())

    def test_lora_of_the_head_is_refused_as_such(self):
        vocabulary, width = tensors(TINY / "model.safetensors")["lm_head.weight"][1]
        self.change(target_modules=[*json.loads((self.adapter / "adapter_config.json").read_text())["target_modules"], "lm_head"])
        self.add(TINY, lm_head__lora_A=("F32", [16, width], bytes(64 * width)), lm_head__lora_B=("F32", [vocabulary, 16], bytes(64 * vocabulary)))
        for command in self.with_adapter():
            self.refused(7, command, "LoRA of the embedding or the head is not supported")

    def test_a_text_part_that_was_saved_alone(self):
        """transformers leaves the tensors of Qwen 3.5 their names in the whole model."""
        base = shutil.copytree(TINY, self.dir / "base")
        put_tensors(base / "model.safetensors", {name.replace("model.", "model.language_model.", 1): t
                                                 for name, t in tensors(TINY / "model.safetensors").items()})
        own, other = (self.ok("eval", "--model", model, "--data", self.data, "--json") for model in (TINY, base))
        self.assertEqual(json.loads(own)["loss"], json.loads(other)["loss"])

    def test_inspect_tells_what_a_run_would_refuse(self):
        """Fails if an adapter of two makers is described as if it were one, or infinity is only a word of the report."""
        self.change(r=8)
        self.refused(4, ("inspect", "adapter", self.adapter), "has rank 16, adapter_config.json asks for 8")
        self.change(r=16, target_modules=["q_proj"])
        self.refused(4, ("inspect", "adapter", self.adapter), '"target_modules" of adapter_config.json does not name')
        self.change(target_modules="all-linear")
        file = self.adapter / "adapter_model.safetensors"
        file.write_bytes(file.read_bytes()[:-4] + struct.pack("<f", math.inf))
        result = run("inspect", "adapter", self.adapter)
        self.assertEqual(result.returncode, 0)
        self.assertIn("1 of the adapter's numbers are not finite", result.stderr)


main(Adapters, Adapters)
