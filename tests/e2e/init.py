#!/usr/bin/env python3
"""hone init, and --learning-rate auto, as a user meets them.

    init.py HONE ASSETS DATA
"""
import json
import os
import re
import resource
import shutil
import subprocess

from case import CHAT, DATA, HONE, SANITIZED, TINY, Case, main, run

WIDTH = json.loads((TINY / "config.json").read_text())["hidden_size"]
RATE = float(f"{5e-4 * (2000 / WIDTH) ** 0.781:.2e}")           # tiny-llama is a llama


def chat(i, words=6):
    return {"messages": [{"role": "user", "content": f"What is number {i}?"}, {"role": "assistant", "content": " ".join(["word"] * words)}]}


class Init(Case):
    def setUp(self):
        super().setUp()
        self.yaml = self.dir / "run.yaml"

    def init(self, data, *args, model=TINY, **options):
        result = run("init", "--model", model, "--data", data, "--output", self.yaml, "--json", *args, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["yaml"], self.yaml.read_text())
        return report

    def keys(self):
        """The YAML's pairs; comments stand on lines of their own."""
        lines = [line for line in self.yaml.read_text().splitlines() if line and not line.startswith("#")]
        return dict(line.split(": ", 1) for line in lines)

    def test_three_words_train(self):
        """Without any other option, in the current directory."""
        data = self.write("chats.jsonl", *map(chat, range(60)))
        line = subprocess.run([HONE, "init", "--model", TINY, "--data", data.name], cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(line.returncode, 0, line.stderr)
        self.assertRegex(line.stdout, r"(?s)^model +llama, .*\ndata +60 rows \(messages\), .*\nrun +lora in \w+ on \w+, 45 steps of 4 rows, .*"
                                      r"\nmemory .*\nwrote +run\.yaml, .*\nnext +hone train --config run\.yaml\n$")
        run_ = subprocess.run([HONE, "train", "--config", "run.yaml", "--json"], cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(run_.returncode, 0, run_.stderr)
        out = json.loads(run_.stdout)
        self.assertEqual((out["steps"], out["output"], out["data"]["eval_rows"]), (45, "run-out", 3))
        self.assertLess(out["eval_loss"], out["first_eval_loss"])
        self.assertTrue((self.dir / "run-out/adapter_model.safetensors").exists())
        self.assertIn(f"learning rate {RATE:g} = 5e-05 x 10 for LoRA x (2000 / {WIDTH} channels)^0.781, by the rule of LoRA Without Regret", run_.stderr)

    def test_columns_of_other_names_are_mapped(self):
        """Before: --column-mapping, which the message of a file with such columns recommends, was ignored."""
        data = self.dir / "questions.csv"
        data.write_text("question,answer\n" + "".join(f"What is {i}?,It is {i}.\n" for i in range(60)))
        self.fails(9, "init", "--model", TINY, "--data", data, "--output", self.yaml, says=["--column-mapping"])
        self.init(data, "--column-mapping", "prompt=question,completion=answer")
        self.assertIn("prompt=question,completion=answer", self.keys()["column_mapping"])
        self.ok("train", "--config", self.yaml, "--dry-run")

    def test_what_it_writes(self):
        data = self.write("chats.jsonl", *map(chat, range(400)))
        report = self.init(data)
        keys = self.keys()
        self.assertEqual(keys["model_name_or_path"], str(TINY))
        self.assertEqual((keys["finetuning_type"], keys["learning_rate"], keys["val_set_size"]), ("lora", "auto", "0.05"))
        self.assertEqual((keys["num_train_epochs"], keys["per_device_train_batch_size"], keys["excess_length"]), ("3", "8", "error"))
        self.assertEqual((report["learning_rate"], report["eval_rows"]), (RATE, 20))
        self.assertEqual(int(keys["max_length"]) % 64, 0)
        text = self.yaml.read_text()
        for words in ("400 rows (messages)", "Half of the rows", "LoRA Without Regret", "GB that are free", "hone train --config"):
            self.assertIn(words, " ".join(text.replace("\n#", "").split()))
        self.assertLessEqual(max(len(line) for line in text.splitlines() if line.startswith("#")), 100)
        plan = json.loads(self.ok("plan", "--config", self.yaml, "--json"))
        self.assertEqual(plan["allocated_bytes"], report["plan"]["allocated_bytes"])

    def test_nothing_is_overwritten(self):
        data = self.write("chats.jsonl", *map(chat, range(8)))
        self.yaml.write_text("mine")
        self.fails(2, "init", "--model", TINY, "--data", data, "--output", self.yaml, says=["run.yaml exists", "--output"])
        self.assertEqual(self.yaml.read_text(), "mine")
        self.fails(3, "init", "--model", TINY, "--data", data, "--output", self.dir / "none/run.yaml", says=["none/run.yaml"])

    def test_few_rows_and_many(self):
        self.init(self.write("few.jsonl", *map(chat, range(8))))
        self.assertNotIn("val_set_size", self.keys())
        self.assertEqual(self.keys()["per_device_train_batch_size"], "4")
        self.yaml.unlink()
        self.init(self.write("many.jsonl", *map(chat, range(12000))))
        self.assertEqual((self.keys()["val_set_size"], self.keys()["num_train_epochs"], self.keys()["per_device_train_batch_size"]), ("500", "1", "16"))

    def test_a_directory_with_its_own_validation(self):
        (self.dir / "set").mkdir()
        self.write("set/train.jsonl", *map(chat, range(50)))
        self.write("set/valid.jsonl", *map(chat, range(5)))
        report = self.init(self.dir / "set")
        self.assertNotIn("val_set_size", self.keys())
        self.assertEqual(report["eval_rows"], 5)
        self.ok("train", "--config", self.yaml, "--output", self.dir / "out", "--max-steps", 1)

    def test_rows_beyond_the_window_are_reported(self):
        window = json.loads((TINY / "config.json").read_text())["max_position_embeddings"]
        self.init(self.write("long.jsonl", *map(chat, range(50)), chat(1, window + 10)))
        self.assertEqual((self.keys()["max_length"], self.keys()["excess_length"]), (str(window), "truncate"))
        self.assertIn("Longer rows, 1 of 51,", self.yaml.read_text())
        self.ok("train", "--config", self.yaml, "--output", self.dir / "out", "--max-steps", 1)

    def test_odd_names(self):
        """Quotes, colons and blanks of paths arrive."""
        (self.dir / 'a "b": #c').mkdir()
        data = self.write('a "b": #c/- x\\y.jsonl', *map(chat, range(8)))
        self.init(data)
        self.ok("train", "--config", self.yaml, "--output", self.dir / "out", "--max-steps", 1)

    def test_mistakes(self):
        data = self.write("chats.jsonl", CHAT)
        self.fails(2, "init", "--data", data, says=["--model"])
        self.fails(2, "init", "--model", TINY, says=["--data"])
        self.fails(9, "init", "--model", TINY, "--data", self.write("bad.jsonl", CHAT, '{"messages": ['), says=["bad.jsonl:2: "])
        self.fails(3, "init", "--model", TINY, "--data", self.dir / "none.jsonl", says=["none.jsonl"])
        self.assertFalse(self.yaml.exists())

    def test_values_fit_the_memory(self):
        """A model of 2.5 billion parameters, of which only the configuration is there."""
        if SANITIZED:
            return                                      # it takes terabytes of addresses
        model = self.dir / "big"
        shutil.copytree(TINY, model)
        (model / "model.safetensors").unlink()
        config = json.loads((TINY / "config.json").read_text())
        config |= {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 14, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "dtype": "bfloat16"}
        (model / "config.json").write_text(json.dumps(config))
        data = self.write("chats.jsonl", *map(chat, range(50)), chat(1, 1500))
        def limit(gigabytes):
            return lambda: resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 1e9),) * 2)
        cases = {}
        for gigabytes in (4.0, 2.6):
            report = self.init(data, "--device", "cpu", model=model, preexec_fn=limit(gigabytes))
            self.assertTrue(report["plan"]["fits"])
            cases[gigabytes] = (report["finetuning_type"], report["max_length"])
            self.yaml.unlink()
        print(cases)
        self.assertEqual({method for method, _ in cases.values()}, {"qlora"})
        result = run("init", "--model", model, "--data", data, "--output", self.yaml, "--device", "cpu", preexec_fn=limit(1.2))
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn("smaller model", result.stderr)
        self.assertFalse(self.yaml.exists())

    # --- the learning rate ------------------------------------------------------------------------------------------------------

    def test_a_rate_that_was_decided_is_a_number(self):
        data, out = self.write("chats.jsonl", *map(chat, range(16))), self.dir / "out"
        line = ("--model", TINY, "--data", data, "--learning-rate", "auto", "--lr-scheduler-type", "constant", "--warmup-ratio", 0)
        self.ok("train", *line, "--output", out, "--num-train-epochs", 4)
        rows = [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(rows[0]["learning_rate"], RATE)
        self.assertEqual({row["learning_rate"] for row in rows if "grad_norm" in row}, {RATE})
        states = list(out.glob("checkpoint-*/*.json"))
        self.assertTrue(any(re.search(rf'"learning_rate": "{RATE:g}"', p.read_text()) for p in states))
        # The same run by the number has the same bytes, and either resumes the other.
        same = self.dir / "same"
        number = [RATE if word == "auto" else word for word in line]
        self.ok("train", *number, "--output", same, "--num-train-epochs", 4)
        self.assertEqual((same / "adapter_model.safetensors").read_bytes(), (out / "adapter_model.safetensors").read_bytes())
        self.assertIn("no step was left", self.ok("train", *line, "--output", same, "--num-train-epochs", 4))
        self.assertIn("no step was left", self.ok("train", *number, "--output", out, "--num-train-epochs", 4))

    def test_words_that_are_no_rate(self):
        data = self.write("chats.jsonl", *map(chat, range(8)))
        self.fails(2, "train", "--model", TINY, "--data", data, "--output", self.dir / "out", "--learning-rate", "fast", says=["auto or a number"])
        self.fails(2, "train", "--model", TINY, "--data", data, "--output", self.dir / "out", "--weight-decay", "auto", says=["a number of at least 0"])
        self.fails(2, "train", "--model", TINY, "--data", data, "--output", self.dir / "out", "--learning-rate", "auto", "--optim", "lion",
                   says=["AdamW", "--optim lion"])


if __name__ == "__main__":
    main(Init, Init)
