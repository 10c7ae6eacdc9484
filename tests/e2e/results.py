#!/usr/bin/env python3
"""How a run ends, what it shows meanwhile, and what it leaves besides weights.

    results.py HONE ASSETS DATA
"""
import csv
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from case import TINY, main, run
from train import TrainCase, chat, checkpoints, metrics

ROOT = pathlib.Path(__file__).parents[2]
PROMPTS = ("What is number 3?", "What is\nnumber 5?", "Number 7")


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


class Results(TrainCase):
    def setUp(self):
        super().setUp()
        # The same questions with another answer: its loss goes down as the model learns that there is text, and up as it learns which.
        other = [chat(i) for i in range(6)]
        for row in other:
            row["messages"][1]["content"] = "Nothing of the kind: Debian has no such thing."
        self.against = self.write("against.jsonl", *other)

    def overfit(self, out, *args):
        return self.train(out, "--eval-data", self.against, "--eval-steps", 4, "--save-steps", 10, "--max-steps", 40, "--learning-rate", 0.02, *args)

    def adapter(self, path):
        return (self.dir / path / "adapter_model.safetensors").read_bytes()

    def test_a_run_that_brings_nothing_ends_early_and_says_so(self):
        args = ("--eval-data", self.valid, "--eval-steps", 2, "--max-steps", 20, "--early-stopping-threshold", 100)
        result = run(*self.command("out", *args, "--early-stopping-patience", 2))
        self.assertEqual(result.returncode, 0, result.stderr)
        r = json.loads(result.stdout)
        self.assertEqual((r["steps"], r["stopped_early"], r["saved_step"]), (4, True, 4))
        self.assertRegex(result.stderr, r"(?m)^early stopping after step 4 of 20: --early-stopping-patience 2 is used up; the lowest validation loss is \d")
        self.assertEqual(checkpoints(self.dir / "out")[-1], 4)
        self.assertEqual(self.result("out"), self.adapter("out/checkpoint-4"))
        self.assertEqual(lines(self.dir / "out")[-1]["how"], "early_stopping")
        before = self.result("out")
        again = self.train("out", *args, "--early-stopping-patience", 2)
        self.assertEqual((again["steps"], again["resumed_step"], self.result("out")), (4, 4, before))
        longer = self.train("out", *args, "--early-stopping-patience", 3)           # as far as a run that had it from the start
        self.assertEqual((longer["steps"], longer["resumed_step"]), (6, 4))
        self.train("whole", *args, "--early-stopping-patience", 3)
        self.assertEqual(self.result("out"), self.result("whole"))
        self.assertEqual([o["step"] for o in metrics(self.dir / "out")[2]], [0, 2, 4, 6])

    def test_patience_counts_as_transformers_does(self):
        """The validations of a run that goes on, and where the callback's rule ends it."""
        self.overfit("whole")
        evals = [(o["step"], o["eval_loss"]) for o in metrics(self.dir / "whole")[2]]
        for patience, threshold in ((1, 0), (2, 0), (2, 0.05), (3, 0.2)):
            best, stale, ends = None, 0, 40
            for step, loss in evals:
                better = best is None or (loss < best and abs(loss - best) > threshold)
                stale = 0 if better else stale + 1
                best = loss if best is None else min(best, loss)
                if stale >= patience:
                    ends = step
                    break
            with self.subTest(patience=patience, threshold=threshold):
                r = self.overfit(f"{patience}-{threshold}", "--early-stopping-patience", patience, "--early-stopping-threshold", threshold)
                self.assertEqual(r["steps"], ends)
                self.assertLess(ends, 40)

    def test_the_best_checkpoint_is_the_result(self):
        r = self.overfit("last")
        evals = {o["step"]: o["eval_loss"] for o in metrics(self.dir / "last")[2]}
        best = min(evals, key=evals.get)
        self.assertIn(best, range(1, 40))
        self.assertEqual((r["best_step"], r["saved_step"]), (best, 40))
        self.assertNotEqual(self.result("last"), self.adapter(f"last/checkpoint-{best}"))
        r = self.overfit("best", "--load-best-model-at-end")
        self.assertEqual((r["best_step"], r["saved_step"], r["steps"]), (best, best, 40))
        self.assertEqual(self.result("best"), self.adapter(f"last/checkpoint-{best}"))
        self.assertEqual(lines(self.dir / "best")[-1]["result_step"], best)
        files = {p.name for p in (self.dir / "best").iterdir() if p.is_file()}
        self.assertEqual(files, {"adapter_model.safetensors", "adapter_config.json", "metrics.jsonl", "run.json", "provenance.json"})
        # with all weights, and shown to a person
        args = [a for a in self.command("full", "--finetuning-type", "full", "--eval-data", self.against, "--eval-steps", 4, "--max-steps", 40,
                                        "--learning-rate", 0.01, "--load-best-model-at-end") if a != "--json"]
        text = self.ok(*args)
        step = int(re.search(r"(?m)^model +\S+, of step (\d+), which has the lowest validation loss$", text)[1])
        self.assertEqual(self.result("full", True), (self.dir / f"full/checkpoint-{step}/model.safetensors").read_bytes())
        self.ok("generate", "--model", self.dir / "full", "--prompt", "Hi", "--max-new-tokens", 2)

    def test_the_best_checkpoint_of_a_run_that_goes_on_elsewhere(self):
        """Seen to fail: it was reported after the last step that it is gone, and there was no result. Files next to it stay there."""
        r = self.overfit("best", "--load-best-model-at-end", "--save-steps", 4)
        best, whole = r["best_step"], self.result("best")
        (self.dir / f"best/checkpoint-{best}/metrics.jsonl").write_text("hi\n")
        resume = ("--load-best-model-at-end", "--save-steps", 4, "--resume")
        self.assertEqual(self.overfit("there", *resume, self.dir / f"best/checkpoint-{best}")["saved_step"], best)
        self.assertEqual(self.result("there"), whole)
        self.overfit("best", "--load-best-model-at-end", "--save-steps", 4)
        self.assertNotEqual((self.dir / "best/metrics.jsonl").read_text(), "hi\n")
        later = max(int(p.name.split("-")[1]) for p in (self.dir / "best").glob("checkpoint-*"))
        self.assertGreater(later, best)
        with self.assertRaisesRegex(AssertionError, f"checkpoint-{best}, which has the lowest validation loss, is gone"):
            self.overfit("nowhere", *resume, self.dir / f"best/checkpoint-{later}")
        self.assertEqual(lines(self.dir / "nowhere")[-1]["how"], "failed")

    def test_the_best_checkpoint_is_known_by_what_it_says(self):
        """Seen to fail: the checkpoint that had its name became the result; a damaged one was reported after the last step."""
        args = ("--load-best-model-at-end", "--save-steps", 4)
        best, whole = self.overfit("best", *args)["best_step"], self.result("best")
        names = [self.dir / f"best/checkpoint-{step}" for step in (best, 40)]
        for _ in range(2):                          # exchanged, and as they were
            for a, b in ((names[0], self.dir / "x"), (names[1], names[0]), (self.dir / "x", names[1])):
                a.rename(b)
            self.assertEqual(self.overfit("best", *args)["saved_step"], best)
            self.assertEqual(self.result("best"), whole)
        path = names[0] / "adapter_model.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with self.assertRaisesRegex(AssertionError, "damaged.* It has the lowest validation loss: without --load-best-model-at-end"):
            self.overfit("best", *args)

    def test_a_run_that_begins_with_another_adapter_is_another_run(self):
        """Seen to fail: it went on from the checkpoints of the first, and said that it had begun with the second."""
        for seed in (1, 2):
            self.train(f"start-{seed}", "--max-steps", 2, "--seed", seed)
        begin = ("--max-steps", 4, "--save-steps", 2)
        self.train("on", *begin, "--init-adapter", self.dir / "start-1")
        whole = self.result("on")
        self.fails(2, *self.command("on", *begin, "--init-adapter", self.dir / "start-2"), says=["with other weights than those of --init-adapter"])
        shutil.rmtree(self.dir / "on/checkpoint-4")
        (self.dir / "start-1").rename(self.dir / "elsewhere")
        self.train("on", *begin, "--init-adapter", self.dir / "elsewhere")
        self.assertEqual(self.result("on"), whole)

    def test_a_killed_run_goes_on_to_the_same_best_result(self):
        self.data = self.write("long.jsonl", *(chat(i, 24) for i in range(64)))
        args = ("--max-steps", 30, "--save-steps", 5, "--per-device-train-batch-size", 24, "--learning-rate", 0.02, "--eval-data", self.against,
                "--eval-steps", 3, "--load-best-model-at-end", "--early-stopping-patience", 3, "--report-to", "csv")
        whole = self.train("whole", *args)
        for number in (signal.SIGKILL, signal.SIGINT):
            out = f"cut-{number}"
            code, err = self.interrupt(number, out, *args)
            self.assertEqual(code, 10 if number == signal.SIGINT else -number, err)
            if number == signal.SIGINT:
                self.assertEqual(lines(self.dir / out)[-1]["how"], "stopped")
            r = self.train(out, *args)
            for key in ("steps", "best_step", "saved_step", "stopped_early", "best_eval_loss"):
                self.assertEqual(r[key], whole[key])
            self.assertEqual(self.result(out), self.result("whole"))
            self.same_csv(self.dir / out)

    def same_csv(self, out):
        with open(out / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        want = [o for o in lines(out) if "loss" in o or "eval_loss" in o]
        self.assertEqual(len(rows), len(want))
        for row, o in zip(rows, want):
            for key, text in row.items():
                self.assertEqual(float(text) if text else None, o.get(key), key)

    def test_csv_has_the_numbers_of_the_metrics(self):
        self.train("out", "--eval-data", self.valid, "--eval-steps", 3, "--report-to", "csv")
        self.same_csv(self.dir / "out")
        self.train("later", "--eval-data", self.valid, "--save-steps", 3)
        shutil.rmtree(self.dir / "later/checkpoint-6")
        self.train("later", "--eval-data", self.valid, "--save-steps", 3, "--report-to", "all")     # the steps before too
        self.same_csv(self.dir / "later")
        self.assertFalse((self.dir / "out/tensorboard").exists())

    def test_prompts_are_answered_at_every_validation(self):
        prompts = self.write("prompts.txt", {"prompt": PROMPTS[1]}, "", PROMPTS[2])
        args = ("--sample-prompt", PROMPTS[0], "--sample-prompts", prompts, "--sample-length", 48)
        self.train("out", "--eval-data", self.valid, "--eval-steps", 3, *args)
        samples = [o for o in lines(self.dir / "out") if o.get("event") == "sample"]
        self.assertEqual([(o["step"], o["prompt"]) for o in samples], list(itertools.product((0, 3, 6), PROMPTS)))
        for o in samples[-3:]:
            said = json.dumps(self.ok("generate", "--model", TINY, "--adapter", self.dir / "out", "--prompt", o["prompt"],
                                      "--max-new-tokens", o["new_tokens"])[:-1])
            self.assertEqual(json.dumps(o["text"]), said)
        self.assertNotEqual(samples[0]["text"], samples[-3]["text"])
        self.train("plain", "--eval-data", self.valid, "--eval-steps", 3)
        self.assertEqual(self.result("out"), self.result("plain"))
        self.train("alone", "--eval-steps", 2, "--eval-on-start", "false", *args)                      # without validation data
        steps = [o["step"] for o in lines(self.dir / "alone") if o.get("event") == "sample"]
        self.assertEqual(steps, [2, 2, 2, 4, 4, 4, 6, 6, 6])
        self.assertEqual(self.result("alone"), self.result("plain"))

    def test_a_mistake_is_told_before_the_first_step(self):
        words = self.write("words.txt", " ".join(["word"] * 80))
        empty = self.write("empty.txt", "")
        for code, says, args in ((2, "--sample-length 64", ("--sample-prompts", words, "--sample-length", 64)),
                                 (4, "there is no prompt in it", ("--sample-prompts", empty)),
                                 (3, "nowhere.txt", ("--sample-prompts", self.dir / "nowhere.txt")),
                                 (2, "--eval-data FILE", ("--early-stopping-patience", 3)),
                                 (2, "--eval-data FILE", ("--load-best-model-at-end",)),
                                 (2, "without --early-stopping-patience", ("--early-stopping-threshold", 0.1)),
                                 (2, "docs/metrics.md", ("--report-to", "wandb")),
                                 (2, "--power is for --lr-scheduler-type polynomial", ("--power", 2)),
                                 (2, "needs one of --min-lr", ("--lr-scheduler-type", "cosine_with_min_lr")),
                                 (2, "are more than the 6 steps", ("--lr-scheduler-type", "warmup_stable_decay", "--num-decay-steps", 7))):
            with self.subTest(args=args):
                result = run(*self.command("out", *args))
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(says, result.stderr)
                self.assertNotIn("step 1/6", result.stderr)

    # --- metrics.jsonl, as docs/metrics.md has it

    def documented(self):
        """The keys of each kind of line, and which of them may be missing, by the title of its section."""
        page = (ROOT / "docs/metrics.md").read_text()
        kinds = {}
        for title, text in re.findall(r"(?ms)^### ([^\n]+)\n(.*?)(?=^##)", page):
            rows = re.findall(r"(?m)^\| `(\w+)` \| (.*) \|$", text)
            kinds[title] = [key for key, _ in rows], {key for key, what in rows if what.startswith("only ")}
        return kinds

    def test_every_key_of_the_metrics_is_documented(self):
        kinds = self.documented()
        titles = {"start": "The start of a process", "resume": "The start of a process", None: "A step", "eval": "A validation",
                  "sample": "A sample", "end": "The end of a process"}
        self.assertEqual(set(titles.values()), set(kinds))
        args = ("--eval-data", self.valid, "--eval-steps", 3, "--save-steps", 3, "--sample-prompt", "Hi", "--sample-length", 32, "--verify-every", 2)
        self.train("out", *args)
        shutil.rmtree(self.dir / "out/checkpoint-6")
        seen = lines(self.dir / "out")
        self.train("out", *args)
        seen += lines(self.dir / "out")
        result = run(*self.command("bad", "--learning-rate", 1e30, "--dtype", "float32", "--max-bad-steps", 2))
        self.assertEqual(result.returncode, 9, result.stderr)
        seen += lines(self.dir / "bad")
        self.assertEqual({o.get("event") for o in seen}, set(titles))
        met = set()
        for o in seen:
            keys, may_miss = kinds[titles[o.get("event")]]
            self.assertEqual(list(o), [key for key in keys if key in o or key not in may_miss], o)
            met |= set(o)
        self.assertEqual(met, {key for keys, _ in kinds.values() for key in keys})
        self.assertEqual({o["how"] for o in seen if o.get("event") == "end"}, {"finished", "failed"})

    # --- --on-finish

    def finished(self, *args, code=0):
        """What a command gets of a run, and what the run printed."""
        env = self.dir / "env"
        env.unlink(missing_ok=True)
        result = run(*self.command("out", *args, "--on-finish", f"echo told; env > {env}"))
        self.assertEqual(result.returncode, code, result.stderr)
        return dict(line.split("=", 1) for line in env.read_text().splitlines() if line.startswith("HONE_")), result

    def test_a_command_is_told_how_a_run_ended(self):
        told, result = self.finished("--eval-data", self.valid)
        r = json.loads(result.stdout)                               # and nothing else is printed there
        self.assertIn("told", result.stderr)
        self.assertEqual((told["HONE_STATUS"], told["HONE_EXIT_CODE"], told["HONE_OUTPUT"], told["HONE_STEPS"], told["HONE_SAVED_STEP"]),
                         ("finished", "0", str(self.dir / "out"), "6", "6"))
        for key in ("loss", "eval_loss", "best_eval_loss"):
            self.assertAlmostEqual(float(told["HONE_" + key.upper()]), r[key], places=6)
        told, result = self.finished("--data", self.dir / "nowhere.jsonl", code=3)
        self.assertEqual((told["HONE_STATUS"], told["HONE_EXIT_CODE"], told["HONE_LOSS"]), ("failed", "3", ""))
        self.assertIn("nowhere.jsonl", told["HONE_MESSAGE"])
        self.assertIn("hone: " + told["HONE_MESSAGE"], result.stderr)
        page = (ROOT / "docs/metrics.md").read_text()
        self.assertEqual({key for key in told if key not in os.environ}, set(re.findall(r"`(HONE_\w+)`", page)))

    def test_a_command_is_run_after_ctrl_c(self):
        self.data = self.write("long.jsonl", *(chat(i, 24) for i in range(64)))
        env = self.dir / "env"
        code, err = self.interrupt(signal.SIGINT, "out", "--max-steps", 2000, "--per-device-train-batch-size", 24,
                                   "--on-finish", f"env > {env}; kill -TERM $$")        # it is not ignored, and not blocked
        self.assertEqual(code, 10, err)
        self.assertIn("HONE_STATUS=stopped", env.read_text())
        self.assertIn("hone: warning: the command of --on-finish ended with exit code 143", err)

    def test_a_command_that_fails_is_a_warning(self):
        result = run(*self.command("out", "--on-finish", "exit 3"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("hone: warning: the command of --on-finish ended with exit code 3\n", result.stderr)

    def test_a_file_of_options_cannot_start_a_program(self):
        config = self.write("run.yaml", "on_finish: touch /tmp/never")
        self.fails(2, *self.command("out", "--config", config), says=["run.yaml:1", "can only be given on the command line"])

    # --- trackers

    def test_the_script_for_trackers_sends_every_number(self):
        self.train("out", "--eval-data", self.valid, "--eval-steps", 3)
        stand_in = self.dir / "stand-in"
        stand_in.mkdir()
        (stand_in / "mlflow.py").write_text(
            "import contextlib, json\n"
            "set_experiment = lambda name: print(json.dumps(['experiment', name]))\n"
            "start_run = lambda run_name: contextlib.nullcontext()\n"
            "log_params = lambda params: print(json.dumps(['params', params]))\n"
            "log_metrics = lambda numbers, step: print(json.dumps([step, numbers]))\n")
        (stand_in / "wandb.py").write_text(
            "import contextlib, json\n"
            "class Run:\n"
            "    def log(self, numbers, step): print(json.dumps([step, numbers]))\n"
            "def init(project, name, config):\n"
            "    print(json.dumps(['project', project]) + '\\n' + json.dumps(['config', config]))\n"
            "    return contextlib.nullcontext(Run())\n")
        header, steps, evals = metrics(self.dir / "out")
        for tracker, option in (("mlflow", "--experiment"), ("wandb", "--project")):
            done = subprocess.run([sys.executable, ROOT / "examples/metrics_to.py", tracker, self.dir / "out", option, "mine"], capture_output=True,
                                  text=True, env={**os.environ, "PYTHONPATH": str(stand_in)})
            self.assertEqual(done.returncode, 0, done.stderr)
            name, params, *rows = map(json.loads, done.stdout.splitlines())
            self.assertEqual((name[1], params[1]), ("mine", header))
            sent = dict(map(tuple, ((step, numbers) for step, numbers in rows)))
            self.assertEqual(sorted(sent), list(range(7)))
            for o in (*steps, *evals):
                self.assertLessEqual({key: value for key, value in o.items() if key not in ("step", "event")}.items(), sent[o["step"]].items())


if __name__ == "__main__":
    main(Results, Results)
