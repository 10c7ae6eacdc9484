#!/usr/bin/env python3
"""Training as a user does it.

    train.py HONE ASSETS DATA [--large]

Without --large: a tiny model; what a run writes, that it gives the same bytes however it is cut, and how mistakes are reported.
With it: SmolLM2, the plan against measured memory, and start-up.
"""
import itertools
import json
import math
import os
import pty
import re
import shutil
import signal
import statistics
import subprocess
import time

from case import CHAT, DATA, HONE, SMOL, TINY, Case, main, read_terminal, run, tensors
from stop import stop_when
from train_chats import chat

STEP_KEYS = {"step", "epoch", "loss", "grad_norm", "learning_rate", "tokens", "trained_tokens", "tokens_per_second", "step_seconds", "engine_share"}
MODES = ("none", "selective", "full")


def metrics(out):
    """The header, the steps and the validations of a run."""
    objects = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return objects[0], [o for o in objects[1:] if "loss" in o], [o for o in objects[1:] if "eval_loss" in o]


def losses(out):
    return [o["loss"] for o in metrics(out)[1]]


def checkpoints(out):
    return sorted(int(p.name.split("-")[1]) for p in out.glob("checkpoint-*"))


class TrainCase(Case):
    def setUp(self):
        super().setUp()
        self.data = self.write("chats.jsonl", *map(chat, range(16)))
        self.valid = self.write("valid.jsonl", *map(chat, range(50, 54)))

    def command(self, out, *args):
        """For flags that are given twice the last one counts."""
        return ["train", "--model", TINY, "--data", self.data, "--output", self.dir / out, "--json", "--max-steps", 6,
                "--per-device-train-batch-size", 4, "--learning-rate", 0.01, *args]

    def train(self, out, *args):
        return json.loads(self.ok(*self.command(out, *args)))

    def result(self, out, full=False):
        return (self.dir / out / ("model.safetensors" if full else "adapter_model.safetensors")).read_bytes()

    def near(self, a, b, relative):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertAlmostEqual(x, y, delta=relative * abs(y))

    def interrupt(self, number, out, *args):
        """Sends the signal once step 7 is in the metrics."""
        process = subprocess.Popen([HONE, *map(str, self.command(out, *args))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path = self.dir / out / "metrics.jsonl"
        stop_when(process, lambda: path.exists() and re.search(r'"step": ?7\b', path.read_text()))
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=600)
        return process.returncode, err


class Tiny(TrainCase):
    def test_a_run_writes_an_adapter_metrics_and_checkpoints(self):
        r = self.train("out", "--save-steps", 3, "--eval-data", self.valid, "--eval-steps", 3)
        out = self.dir / "out"
        for name in ("adapter_model.safetensors", "adapter_config.json", "metrics.jsonl"):
            self.assertTrue((out / name).is_file(), name)
        self.assertEqual(checkpoints(out), [3, 6])
        header, steps, evals = metrics(out)
        self.assertGreater(header["startup_seconds"], 0)
        self.assertEqual([s["step"] for s in steps], [1, 2, 3, 4, 5, 6])
        for s in steps:
            self.assertLessEqual(STEP_KEYS, set(s))
            self.assertTrue(all(math.isfinite(s[key]) for key in STEP_KEYS), s)
            self.assertLess(s["trained_tokens"], s["tokens"])
        self.assertAlmostEqual(steps[3]["epoch"], 1.0)
        self.assertEqual([e["step"] for e in evals], [0, 3, 6])
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])
        self.assertEqual((r["steps"], r["method"], r["device"], r["skipped_steps"]), (6, "lora", "cpu", 0))
        self.assertEqual((r["data"]["rows"], r["data"]["eval_rows"], r["steps_per_epoch"]), (16, 4, 4))
        self.assertEqual((r["output"], r["checkpoint"]), (str(out), str(out / "checkpoint-6")))
        self.assertAlmostEqual(r["loss"], steps[-1]["loss"])
        self.assertAlmostEqual(r["eval_loss"], evals[-1]["eval_loss"])
        self.assertAlmostEqual(r["first_eval_loss"], evals[0]["eval_loss"])
        self.assertAlmostEqual(r["best_eval_loss"], min(e["eval_loss"] for e in evals))
        self.assertEqual(r["planned_bytes"], r["allocated_bytes"])

    def test_a_log_gets_plain_lines_and_the_result_says_what_to_try(self):
        args = [a for a in self.command("out", "--eval-data", self.valid, "--sample-prompt", "What is number 3?", "--sample-length", 32)
                if a != "--json"]
        result = run(*args)
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("4 rows", "recompute ", "started after ", "step 0: validation loss ", "What is number 3?", "step 1/6, epoch 0.25, loss ",
                     "step 6/6, epoch 1.50, loss ", "checkpoint-6"):
            self.assertIn(text, result.stderr)
        self.assertNotIn("\r", result.stderr)
        self.assertNotIn("step 2/6", result.stderr)
        words = re.search(r"^try it +hone (.*) --prompt", result.stdout, re.M)[1].split()
        self.ok(*words, "--prompt", "What is number 3?", "--max-new-tokens", 4)
        self.assertEqual(words[-1], str(self.dir / "out"))

    def test_a_terminal_gets_lines_that_are_written_over(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([HONE, *map(str, self.command("out"))], stdout=subprocess.PIPE, stderr=slave, text=True)
        os.close(slave)
        seen = read_terminal(master)
        json.loads(process.communicate()[0])
        self.assertEqual(process.returncode, 0)
        self.assertRegex(seen, rb"\r\x1b\[\?7l(\x1b\[1m)?step 6/6")
        self.assertTrue(seen.endswith(b"\r\033[J"), seen[-80:])

    def test_the_same_command_gives_the_same_bytes_in_every_way_of_recomputing(self):
        for method in ("lora", "full"):
            args = ("--finetuning-type", method, *(("--lora-dropout", 0.1) if method == "lora" else ()))
            names = [f"{method}-{name}" for name in ("again", *MODES)]
            for name, mode in zip(names, ("none", *MODES)):
                self.assertEqual(self.train(name, *args, "--recompute", mode)["recompute"], mode)
            for name in names:
                self.assertEqual(self.result(name, method == "full"), self.result(names[0], method == "full"), name)
        self.train("seed", "--lora-dropout", 0.1, "--seed", 1)
        self.assertNotEqual(self.result("seed"), self.result("lora-none"))

    def test_any_number_of_threads_gives_the_same_bytes_whole_or_resumed(self):
        """With products of several tiles. A run is resumed with another number than it began with."""
        self.data = self.write("long.jsonl", *(chat(i, 24) for i in range(64)))
        for dtype, method in itertools.product(("float32", "bfloat16"), ("lora", "full")):
            args = ("--dtype", dtype, "--finetuning-type", method, "--per-device-train-batch-size", 24, "--max-steps", 4, "--save-steps", 2)

            def bytes_of(name):
                return self.result(name, method == "full"), (self.dir / name / "checkpoint-4/state.safetensors").read_bytes()
            want = None
            for threads, then in ((1, 2), (2, 4), (4, 1)):
                with self.subTest(dtype=dtype, method=method, threads=threads, then=then):
                    name = f"{dtype}-{method}-{threads}"
                    self.train(name, *args, "--threads", threads)
                    want = want or (bytes_of(name), losses(self.dir / name))
                    self.assertTrue(bytes_of(name) == want[0])
                    self.assertEqual(losses(self.dir / name), want[1])
                    shutil.rmtree(self.dir / name / "checkpoint-4")
                    self.assertEqual(self.train(name, *args, "--threads", then)["resumed_step"], 2)
                    self.assertTrue(bytes_of(name) == want[0])

    def test_a_file_of_options_gives_what_the_flags_give(self):
        config = self.write("run.yaml", "lora_r: 8", "lora_target_modules: q_proj,v_proj", "rank_pattern: q_proj=4", "lr_scheduler_type: linear")
        self.train("yaml", "--config", config)
        self.train("flags", "-r", 8, "--lora-target-modules", "q_proj,v_proj", "--rank-pattern", "q_proj=4", "--lr-scheduler-type", "linear")
        self.assertEqual(self.result("yaml"), self.result("flags"))

    def goes_on_after(self, number, method):
        self.data = self.write("long.jsonl", *(chat(i, 24) for i in range(64)))
        full = method == "full"
        args = ("--finetuning-type", method, "--max-steps", 20, "--save-steps", 5, "--per-device-train-batch-size", 24, "--learning-rate", 0.001,
                "--eval-data", self.valid, "--eval-steps", 6, *(() if full else ("--lora-dropout", 0.1)))
        first = self.train("whole", *args)["first_eval_loss"]
        code, err = self.interrupt(number, "cut", *args)
        self.assertEqual(code, 10 if number == signal.SIGINT else -number, err)
        self.assertFalse((self.dir / "cut" / ("model.safetensors" if full else "adapter_model.safetensors")).exists())
        if number == signal.SIGINT:
            step = int(re.search(r"^hone: stopped after step (\d+); the state is in \S+/checkpoint-\1\. Resume with: hone train", err, re.M)[1])
        else:
            step = max(checkpoints(self.dir / "cut"))
        self.assertIn(step, range(5, 20))
        rest = run(*self.command("cut", *args))
        self.assertEqual(rest.returncode, 0, rest.stderr)
        r = json.loads(rest.stdout)
        self.assertEqual((r["resumed_from"], r["resumed_step"]), (str(self.dir / "cut" / f"checkpoint-{step}"), step))
        self.assertEqual(self.result("cut", full), self.result("whole", full))
        # Steps that were lost and repeated may occur twice: the last one counts.
        whole, cut = ({s["step"]: s["loss"] for s in metrics(self.dir / name)[1]} for name in ("whole", "cut"))
        self.assertEqual(cut, whole)
        whole, cut = ({e["step"]: e["eval_loss"] for e in metrics(self.dir / name)[2]} for name in ("whole", "cut"))
        self.assertEqual(cut, whole)                    # one that was cut off too
        self.assertEqual(r["first_eval_loss"], first)
        told = re.findall(r"^step (\d+): validation loss [\d.]+(, the lowest so far)?$", rest.stderr, re.M)
        self.assertTrue(told)
        for step, lowest in told:                       # also before the resume
            self.assertEqual(bool(lowest), whole[int(step)] < min(loss for s, loss in whole.items() if s < int(step)), step)

    def test_a_killed_run_goes_on_to_the_same_adapter(self):
        self.goes_on_after(signal.SIGKILL, "lora")

    def test_a_killed_run_goes_on_to_the_same_model(self):
        self.goes_on_after(signal.SIGKILL, "full")

    def test_an_interrupted_run_says_how_to_go_on_and_does_so_to_the_same_adapter(self):
        self.goes_on_after(signal.SIGINT, "lora")

    def test_an_interrupted_run_goes_on_to_the_same_model(self):
        self.goes_on_after(signal.SIGINT, "full")

    def test_a_finished_run_has_nothing_left_to_do(self):
        self.train("out")
        before = self.result("out")
        r = self.train("out")
        self.assertEqual((r["steps"], r["resumed_step"], r["tokens"]), (6, 6, 0))
        self.assertEqual(self.result("out"), before)
        self.train("out", "--resume", "none")
        self.assertEqual(self.result("out"), before)
        self.train("other", "--resume", self.dir / "out/checkpoint-6")
        self.assertEqual(self.result("other"), before)

    def test_losses_do_not_depend_on_how_a_step_is_cut(self):
        for name, args in (("base", ()), ("small", ("--micro-batch-tokens", 128)), ("large", ("--micro-batch-tokens", 2048)),
                           ("twice", ("--per-device-train-batch-size", 2, "--gradient-accumulation-steps", 2))):
            self.train(name, "--dtype", "float32", *args)
        for name in ("small", "large", "twice"):
            self.near(losses(self.dir / name), losses(self.dir / "base"), 1e-5)

    def test_the_learning_rate_follows_its_schedule(self):
        n, top = 10, 0.01

        def expected(schedule, warm):
            for i in range(1, n + 1):
                progress = (i - 1 - warm) / (n - warm)
                yield top * (i / warm if i <= warm else {"constant": 1, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[schedule])
        for schedule, warm, flags in (("constant", 0, ()), ("linear", 0, ()), ("cosine", 0, ()), ("linear", 3, ("--warmup-steps", 3)),
                                      ("cosine", 4, ("--warmup-steps", 4)), ("cosine", 2, ("--warmup-ratio", 0.2))):
            with self.subTest(schedule=schedule, warm=warm):
                out = f"{schedule}-{warm}"
                self.train(out, "--max-steps", n, "--lr-scheduler-type", schedule, "--warmup-ratio", 0, *flags)
                self.near([s["learning_rate"] for s in metrics(self.dir / out)[1]], list(expected(schedule, warm)), 1e-6)

    def test_epochs_or_steps_say_how_long_a_run_is(self):
        for epochs, steps in ((1, 4), (2, 8), (1.5, 6), (0.25, 1)):
            r = self.train(f"epochs-{epochs}", "--max-steps", 0, "--num-train-epochs", epochs)
            self.assertEqual((r["steps"], r["steps_per_epoch"]), (steps, 4))
            self.assertAlmostEqual(metrics(self.dir / f"epochs-{epochs}")[1][-1]["epoch"], epochs)
        r = self.train("steps", "--max-steps", 9, "--num-train-epochs", 1)
        self.assertEqual(r["steps"], 9)
        self.assertAlmostEqual(metrics(self.dir / "steps")[1][-1]["epoch"], 2.25)
        uneven = self.train("uneven", "--max-steps", 0, "--per-device-train-batch-size", 5)
        self.assertEqual((uneven["steps"], uneven["tokens"]), (4, uneven["data"]["tokens"]))

    def test_rows_are_held_back_for_validation(self):
        for size, held in ((0.25, 4), (3, 3)):
            r = self.train(f"out-{size}", "--val-set-size", size, "--eval-steps", 4)
            self.assertEqual((r["data"]["rows"], r["data"]["eval_rows"]), (16 - held, held))
            self.assertEqual([e["step"] for e in metrics(self.dir / f"out-{size}")[2]], [0, 4, 6])
        self.train("end", "--eval-data", self.valid, "--eval-steps", 0, "--eval-on-start", "false")
        self.assertEqual([e["step"] for e in metrics(self.dir / "end")[2]], [6])
        r = self.train("none")
        self.assertEqual((r["eval_loss"], r["best_eval_loss"], metrics(self.dir / "none")[2]), (None, None, []))

    # Fails if an epoch's end is missed, or a resumed run looks at other steps.
    def test_validations_and_checkpoints_come_so_often_an_epoch(self):
        few = ("--max-steps", 0, "--num-train-epochs", 2, "--eval-data", self.valid, "--save-total-limit", 9)
        for out, args, evals, saves in (
                ("words", ("--eval-strategy", "epoch", "--save-strategy", "epoch"), [0, 4, 8], {4, 8}),
                ("counts", ("--evals-per-epoch", 2, "--saves-per-epoch", 3), [0, 2, 4, 6, 8], {2, 3, 4, 6, 7, 8}),
                ("many", ("--evals-per-epoch", 100, "--save-strategy", "steps"), list(range(9)), {8})):
            r = self.train(out, *few, *args)
            self.assertEqual([e["step"] for e in metrics(self.dir / out)[2]], evals)
            self.assertLessEqual(saves, set(checkpoints(self.dir / out)))
            for step in checkpoints(self.dir / out):
                if step > 3:
                    shutil.rmtree(self.dir / out / f"checkpoint-{step}")
            resumed = self.train(out, *few, *args)
            self.assertEqual([e["step"] for e in metrics(self.dir / out)[2]], evals)
            self.assertEqual((resumed["eval_loss"], resumed["steps"]), (r["eval_loss"], 8))
        said = run(*self.command("late", "--eval-data", self.valid, "--eval-steps", 50)).stderr
        self.assertIn("warning: the run has 6 steps and validates only before them and at its end: --eval-steps is 50; --evals-per-epoch 4", said)
        said = run(*self.command("never", "--evals-per-epoch", 2)).stderr
        self.assertIn("warning: --evals-per-epoch: there is nothing to validate on, so no validation comes: name a file with --eval-data", said)

    # Fails if a longer run begins again, has other bytes, or goes on where its rates would have been others.
    def test_a_run_of_a_constant_rate_is_made_longer(self):
        constant = ("--lr-scheduler-type", "constant", "--warmup-ratio", 0)
        self.train("out", *constant, "--max-steps", 4)
        longer = run(*self.command("out", *constant, "--max-steps", 8))
        self.assertIn("checkpoint-4 is of a run of 4 steps, which goes on to step 8\n", longer.stderr)
        self.assertEqual(json.loads(longer.stdout)["resumed_step"], 4)
        self.train("whole", *constant, "--max-steps", 8)
        self.assertEqual(self.result("out"), self.result("whole"))
        self.train("out", *constant, "--max-steps", 0, "--num-train-epochs", 3)
        self.assertEqual(metrics(self.dir / "out")[1][-1]["step"], 12)
        self.fails(2, *self.command("out", *constant, "--max-steps", 8), says=["num_train_epochs 3", "--resume none"])
        best = (*constant, "--val-set-size", 2, "--eval-steps", 3, "--load-best-model-at-end")
        self.train("best", *best, "--max-steps", 4)             # and validates after step 4, as a longer run would not
        self.fails(2, *self.command("best", *best, "--max-steps", 8), says=["max_steps 4", "to train longer"])
        self.train("full", "--finetuning-type", "full")
        self.fails(2, *self.command("full", "--finetuning-type", "full", "--max-steps", 8),
                   says=["max_steps 6", "to train longer", f"--model {self.dir / 'full'} --output ANOTHER"])

    def test_the_best_checkpoint_is_kept(self):
        # It learns one answer by heart, so another one becomes ever less likely.
        self.data = self.write("one.jsonl", CHAT)
        other = self.write("other.jsonl", {"messages": [CHAT["messages"][0], {"role": "assistant", "content": "I will not say that to you, ever."}]})
        r = self.train("out", "--finetuning-type", "full", "--max-steps", 40, "--per-device-train-batch-size", 1, "--learning-rate", 0.003, "--lr-scheduler-type",
                       "constant", "--warmup-ratio", 0, "--eval-data", other, "--eval-steps", 8, "--save-steps", 8, "--save-total-limit", 1,
                       "--eval-on-start", "false")
        evals = metrics(self.dir / "out")[2]
        best = min(evals, key=lambda e: e["eval_loss"])["step"]
        self.assertLess(best, 40)
        self.assertEqual(checkpoints(self.dir / "out"), [best, 40])
        self.assertEqual(r["best_checkpoint"], str(self.dir / "out" / f"checkpoint-{best}"))
        self.train("none", "--save-steps", 2, "--save-total-limit", 1)
        self.assertEqual(checkpoints(self.dir / "none"), [6])

    def test_packing_fills_windows(self):
        plain = self.train("plain", "--max-steps", 0, "--per-device-train-batch-size", 1)
        packed = self.train("packed", "--max-steps", 0, "--per-device-train-batch-size", 1, "--packing", "--max-length", 200)
        self.assertEqual((plain["steps"], plain["tokens"], packed["tokens"]), (16, packed["tokens"], packed["data"]["tokens"]))
        self.assertLess(packed["steps"], 16)
        for step in metrics(self.dir / "packed")[1]:
            self.assertLessEqual(step["tokens"], 200)
            self.assertTrue(math.isfinite(step["loss"]))

    def test_every_token_or_only_the_answers_are_trained(self):
        answers = self.train("answers", "--max-steps", 1)
        every = self.train("every", "--max-steps", 1, "--train-on-inputs")
        self.assertEqual(every["data"]["trained_tokens"], every["data"]["tokens"] - 16)
        self.assertLess(answers["data"]["trained_tokens"], every["data"]["trained_tokens"])
        self.assertNotEqual(answers["loss"], every["loss"])

    def test_norms_are_trained_on_request(self):
        model = json.loads(self.ok("inspect", "model", "--model", TINY, "--json"))
        count = (2 * model["config"]["layers"] + 1) * model["config"]["hidden_size"]
        plain, norms = self.train("plain", "--max-steps", 2), self.train("norms", "--max-steps", 2, "--train-norms")
        self.assertEqual(norms["trainable_parameters"] - plain["trainable_parameters"], count)
        self.assertNotEqual(losses(self.dir / "plain")[1], losses(self.dir / "norms")[1])
        full = self.train("full", "--max-steps", 1, "--finetuning-type", "full")
        self.assertEqual(full["trainable_parameters"], model["parameters"])

    def test_adapters_have_the_modules_ranks_and_scales_that_were_asked_for(self):
        out = self.dir / "out"
        self.train("out", "--lora-target-modules", "q_proj,v_proj", "--lora-r", 8, "--lora-alpha", 24, "--rank-pattern", "layers.1.self_attn.v_proj=4",
                   "--alpha-pattern", "q_proj=12", "--use-rslora")
        shapes = {name: shape for name, (_, shape, _) in tensors(out / "adapter_model.safetensors").items()}
        for layer in (0, 1):
            for module, width in (("q_proj", 64), ("v_proj", 32)):
                rank = 4 if (layer, module) == (1, "v_proj") else 8
                name = f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_"
                self.assertEqual((shapes.pop(name + "A.weight"), shapes.pop(name + "B.weight")), ([rank, 64], [width, rank]))
        self.assertEqual(shapes, {})
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((config["peft_type"], sorted(config["target_modules"]), config["r"], config["lora_alpha"], config["use_rslora"]),
                         ("LORA", ["q_proj", "v_proj"], 8, 24, True))
        self.assertEqual((list(config["rank_pattern"].values()), list(config["alpha_pattern"].values())), ([4], [12]))
        self.train("plain", "--lora-target-modules", "q_proj,v_proj", "--lora-r", 8)
        self.train("rslora", "--lora-target-modules", "q_proj,v_proj", "--lora-r", 8, "--use-rslora")
        plain, scaled = losses(self.dir / "plain"), losses(self.dir / "rslora")
        self.assertEqual(plain[0], scaled[0])           # an adapter begins as zero
        self.assertNotEqual(plain[1:], scaled[1:])

    def test_training_goes_on_from_an_adapter(self):
        first = self.train("first", "-r", 4, "--eval-data", self.valid)
        second = self.train("second", "--init-adapter", self.dir / "first", "--eval-data", self.valid)
        self.near([second["first_eval_loss"]], [first["eval_loss"]], 1e-6)
        self.assertEqual(json.loads((self.dir / "second/adapter_config.json").read_text())["r"], 4)

    def test_a_trained_model_evaluates_as_in_its_run(self):
        r = self.train("full", "--finetuning-type", "full", "--learning-rate", 0.001, "--eval-data", self.valid, "--dtype", "float32")
        self.assertLess(r["eval_loss"], r["first_eval_loss"])
        loss = json.loads(self.ok("eval", "--model", self.dir / "full", "--data", self.valid, "--dtype", "float32", "--json"))["loss"]
        self.near([loss], [r["eval_loss"]], 1e-4)

    def test_an_adapter_evaluates_as_in_its_run(self):
        r = self.train("out", "--eval-data", self.valid, "--lora-dropout", 0.1, "--use-rslora", "--rank-pattern", "up_proj=4", "--train-norms")
        args = ("eval", "--model", TINY, "--data", self.valid, "--json")
        loss, base = (json.loads(self.ok(*args, *more))["loss"] for more in (("--adapter", self.dir / "out"), ()))
        self.near([loss], [r["eval_loss"]], 1e-5)
        self.near([base], [r["first_eval_loss"]], 1e-5)
        self.assertLess(loss, base)

    def test_the_plan_is_exact(self):
        for method in ("lora", "full"):
            for dtype in ("float32", "bfloat16"):
                for tokens in (256, 512):
                    for mode in MODES:
                        with self.subTest(method=method, dtype=dtype, tokens=tokens, recompute=mode):
                            args = ("--finetuning-type", method, "--dtype", dtype, "--micro-batch-tokens", tokens, "--recompute", mode)
                            plan = json.loads(self.ok("plan", "--model", TINY, "--for", "train", "--json", *args))
                            r = self.train(f"{method}-{dtype}-{tokens}-{mode}", "--max-steps", 1, *args)
                            self.assertEqual((plan["allocated_bytes"], plan["mapped_bytes"]), (r["allocated_bytes"], r["mapped_bytes"]))

    def test_mistakes_in_options(self):
        good = self.command("out")
        self.fails(2, *good, "--learning-rat", 1, says=["--learning-rat", "--learning-rate"])
        wrong = self.write("wrong.yaml", "lora_r: 8", "lora_alhpa: 16")
        self.fails(2, *good, "--config", wrong, says=["wrong.yaml:2", "lora_alhpa", "lora_alpha"])
        self.fails(2, *good, "--lora-r", 65537, says=["--lora-r", "65537", "1 to 65536"])
        self.fails(2, *good, "--lora-dropout", 1, says=["below 1"])
        self.fails(2, *good, "--lora-target-modules", "q_proj,qproj", says=["qproj", "q_proj", "down_proj"])
        self.fails(2, *good, "--rank-pattern", "q_proj", says=["--rank-pattern", "q_proj"])
        for name in ("--model", "--data", "--output"):
            at = good.index(name)
            self.fails(2, *good[:at], *good[at + 2:], says=[f"hone train needs {name}"])
        self.assertFalse((self.dir / "out").exists())

    def test_mistakes_in_data(self):
        def says(code, *rows, words, more=()):
            self.fails(code, *self.command("out", "--data", self.write("rows.jsonl", *rows), *more), says=words)
        user = {"messages": [{"role": "user", "content": "Hi"}]}
        says(9, user, user, words=["rows.jsonl", "assistant"])
        says(9, CHAT, '{"messages": [', words=["rows.jsonl:2: "])
        says(9, CHAT, CHAT, chat(1, 60), more=["--max-length", 64], words=["rows.jsonl:3: ", "--max-length"])
        says(2, CHAT, CHAT, more=["--val-set-size", 2], words=["--val-set-size"])

    def test_mistakes_in_files(self):
        good = self.command("out")
        self.fails(3, *good, "--data", self.dir / "none.jsonl", says=["none.jsonl", "no such file"])
        self.fails(3, *good, "--eval-data", self.dir / "none.jsonl", says=["none.jsonl", "no such file"])
        self.fails(3, *good, "--model", self.dir / "none", says=[str(self.dir / "none"), "no such directory"])
        self.fails(3, *good, "--resume", self.dir / "none", says=[str(self.dir / "none"), "checkpoint"])
        (self.dir / "empty").mkdir()
        self.fails(3, *good, "--resume", self.dir / "empty", says=[str(self.dir / "empty"), "checkpoint"])
        self.fails(2, *good, "--output", self.data, says=[str(self.data), "a directory"])

    def test_a_checkpoint_of_other_settings_is_not_continued(self):
        self.train("out", "--lora-r", 8)
        before = self.result("out")
        message = self.fails(2, *self.command("out", "--lora-r", 4), says=["8", "4", "--resume none"])
        self.assertRegex(message, "lora[-_]r")
        self.assertEqual(self.result("out"), before)

    def test_a_run_goes_on_only_with_its_own_model_and_rows(self):
        rows = self.data.read_text().splitlines()
        self.train("out")
        self.data.write_text("\n".join([rows[1], rows[0], *rows[2:]]) + "\n")
        self.fails(2, *self.command("out"), says=["checkpoint-6", "other data", "--resume none"])
        self.data.write_text("\n".join(rows) + "\n")
        other = self.dir / "other-model"
        shutil.copytree(TINY, other)
        weights = bytearray((other / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (other / "model.safetensors").write_bytes(weights)
        self.fails(2, *self.command("out"), "--model", other, says=["checkpoint-6", "another base model"])
        shutil.copy(TINY / "model.safetensors", other)
        config = json.loads((TINY / "config.json").read_text())
        (other / "config.json").write_text(json.dumps({**config, "transformers_version": "1", "use_cache": False}))
        self.assertEqual(self.train("out", "--model", other)["resumed_step"], 6)
        for key, value in (("rms_norm_eps", 0.1), ("num_attention_heads", 2 * config["num_attention_heads"]), ("rope_theta", 500)):
            changed = {**config, "head_dim": config["hidden_size"] // config["num_attention_heads"], key: value}
            if key == "num_attention_heads":
                changed |= {"num_key_value_heads": 2 * config["num_key_value_heads"], "head_dim": changed["head_dim"] // 2}
            if "rope_parameters" in config and key == "rope_theta":
                changed["rope_parameters"] = {**config["rope_parameters"], key: value}
            (other / "config.json").write_text(json.dumps(changed))
            self.fails(2, *self.command("out"), "--model", other, says=["checkpoint-6", "another base model", "config.json"])
        self.assertEqual(self.train("out")["resumed_step"], 6)

    def test_a_step_without_a_token_to_train_changes_nothing(self):
        """Seen to fail: such a step ended the run in its middle, and no resume could pass it."""
        silent = chat(3)
        silent["messages"][1]["train"] = False
        self.data = self.write("silent.jsonl", chat(1), chat(2), silent)
        self.assertEqual(self.train("out", "--per-device-train-batch-size", 1, "--shuffle", "false")["skipped_steps"], 0)
        steps = metrics(self.dir / "out")[1]
        self.assertEqual([s["loss"] is None for s in steps], [False, False, True] * 2)
        self.assertEqual([s["trained_tokens"] == 0 for s in steps], [False, False, True] * 2)
        self.assertNotIn("skipped", (self.dir / "out/metrics.jsonl").read_text())
        self.ok("report", self.dir / "out")

    def test_a_run_is_resumed_on_another_day_with_the_date_of_its_first(self):
        """Llama 3.2's template asks for the date. Seen to fail: on the next day the rows were others, and the run could not be resumed."""
        model = self.dir / "dated"
        shutil.copytree(TINY, model)
        template = "{{ strftime_now('%d %b %Y %H:%M') }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        config = json.loads((model / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
        (model / "chat_template.jinja").unlink(missing_ok=True)
        args = "--model", model, "--save-steps", 3

        def train(out, day):
            result = run(*self.command(out, *args), env={**os.environ, "SOURCE_DATE_EPOCH": str(day * 86400 + 3661)})
            self.assertEqual(result.returncode, 0, result.stderr)
            return self.result(out)
        whole, other = train("whole", 1), train("other", 2)
        self.assertNotEqual(whole, other)                   # the date is in the rows
        shutil.rmtree(self.dir / "whole/checkpoint-6")
        self.assertEqual(train("whole", 2), whole)
        shutil.rmtree(self.dir / "whole/checkpoint-6")      # seen to fail: the one that is left lost its name to a kill
        (self.dir / "whole/checkpoint-3").rename(self.dir / "whole/checkpoint-3.part")
        self.assertEqual(train("whole", 2), whole)

    def test_a_run_goes_on_only_with_its_own_kind_of_adapter(self):
        """Seen to fail: matrices of one module went on as those of another of the same size, or with another scale."""
        for name, *args in (("q", "--lora-target-modules", "q_proj"), ("o", "--lora-target-modules", "o_proj"),
                            ("alpha", "--lora-target-modules", "q_proj", "--lora-alpha", 4)):
            self.train(name, "--max-steps", 1, *args)
        self.train("out", "--init-adapter", self.dir / "q")
        before = (self.dir / "out/adapter_config.json").read_bytes()
        for other in (("--init-adapter", self.dir / "o"), ("--init-adapter", self.dir / "alpha"), ()):
            self.fails(2, *self.command("out", *other), says=["checkpoint-6", "another adapter", "--init-adapter"])
        self.assertEqual((self.dir / "out/adapter_config.json").read_bytes(), before)
        shutil.copytree(self.dir / "q", self.dir / "elsewhere")
        self.assertEqual(self.train("out", "--init-adapter", self.dir / "elsewhere")["resumed_step"], 6)

    def test_a_list_of_checksums_that_lacks_a_line_is_damage(self):
        self.train("out", "--save-steps", 3)
        folder = self.dir / "out/checkpoint-6"
        lines = (folder / "checksums.xxh128").read_text().splitlines(keepends=True)
        for name in ("state.safetensors", "trainer_state.json"):
            (folder / "checksums.xxh128").write_text("".join(line for line in lines if name not in line))
            self.fails(4, *self.command("out", "--resume", folder), says=["checkpoint-6", "list of checksums is damaged", name])

    def test_micro_batches_of_another_size_are_reported(self):
        self.train("out", "--micro-batch-tokens", 256)
        r = run(*self.command("out", "--micro-batch-tokens", 256))
        self.assertNotIn("--micro-batch-tokens", r.stderr)
        r = run(*self.command("out", "--micro-batch-tokens", 512))
        self.assertIn("--micro-batch-tokens 512 is not used: the run that is resumed has micro-batches of 256", r.stderr)

    def test_a_run_that_starts_over_keeps_what_others_left(self):
        """Seen to fail: the adapter of the first run stayed next to the model of the second."""
        self.train("out", "--save-steps", 2)
        result = self.result("out")
        before = {p.name: p.read_bytes() for p in (self.dir / "out/checkpoint-6").iterdir()}
        (self.dir / "out/checkpoint-9999").mkdir()
        self.train("out", "--resume", "none", "--save-steps", 2, "--max-steps", 4, "--finetuning-type", "full")
        out = self.dir / "out"
        self.assertEqual(checkpoints(out), [2, 4])
        self.assertEqual(checkpoints(out / "earlier-1"), [4, 6, 9999])
        self.assertTrue((out / "earlier-1/metrics.jsonl").exists())
        self.assertEqual((self.result("out/earlier-1"), list(out.glob("adapter_*"))), (result, []))
        self.assertEqual({p.name: p.read_bytes() for p in (out / "earlier-1/checkpoint-6").iterdir()}, before)
        self.assertEqual(self.train("out", "--save-steps", 2, "--max-steps", 4, "--finetuning-type", "full")["resumed_step"], 4)

    def test_a_damaged_checkpoint_gives_way_to_the_one_before(self):
        self.train("out", "--save-steps", 2)
        want = self.result("out")
        state = self.dir / "out/checkpoint-6/state.safetensors"
        damaged = bytearray(state.read_bytes())
        damaged[-100] ^= 8
        state.write_bytes(damaged)
        done = run(*self.command("out", "--save-steps", 2))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["resumed_step"], 4)
        self.assertRegex(done.stderr, r"checkpoint-6 cannot be used.*state\.safetensors: is damaged")
        self.assertEqual(self.result("out"), want)
        self.assertEqual(checkpoints(self.dir / "out/earlier-1"), [6])

    def test_an_output_belongs_to_one_run_at_a_time(self):
        self.data = self.write("long.jsonl", *(chat(i, 24) for i in range(64)))
        first = subprocess.Popen([HONE, *map(str, self.command("out", "--max-steps", 1000))], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while first.poll() is None and not (self.dir / "out/metrics.jsonl").exists():
            time.sleep(0.001)
        self.fails(2, *self.command("out"), says=["another run", f"process {first.pid} on "])
        first.kill()
        first.communicate()
        self.train("out", "--resume", "none")
        self.assertFalse((self.dir / "out/run.lock").exists())

    def test_an_adapter_of_another_model_is_refused(self):
        self.train("out")
        self.fails(4, "eval", "--model", SMOL, "--data", self.valid, "--adapter", self.dir / "out",
                   says=["adapter_model.safetensors", "lora_", "64", "576"])


class Large(TrainCase):
    def setUp(self):
        super().setUp()
        self.data = self.write("short.jsonl", *[row for row in (DATA / "train.jsonl").read_text().splitlines() if len(row) < 500][:64])

    def command(self, out, *args):
        return super().command(out, "--model", SMOL, "--per-device-train-batch-size", 16, "--learning-rate", 1e-4, *args)

    def test_the_plan_is_the_peak_of_the_process(self):
        """Of methods, sizes and modes each pair is there."""
        for case in itertools.product(range(2), range(2), range(len(MODES))):
            if sum(case) % 2:
                continue
            method, tokens, mode = (of[i] for of, i in zip((("lora", "full"), (256, 1024), MODES), case))
            dtype = "float32" if (tokens, mode) == (256, "selective") else "auto"
            name = f"{method}, {tokens} tokens, recompute {mode}, {dtype}"
            with self.subTest(name):
                args = ("--finetuning-type", method, "--dtype", dtype, "--micro-batch-tokens", tokens, "--recompute", mode)
                plan = json.loads(self.ok("plan", "--model", SMOL, "--for", "train", "--json", *args))
                r = self.train(name, "--max-steps", 2, *args)
                off = plan["peak_bytes"] / r["peak_rss_bytes"] - 1
                print(f"{name}: planned {plan['peak_bytes'] / 1e6:.1f} MB, peak RSS {r['peak_rss_bytes'] / 1e6:.1f} MB, "
                      f"off by {off:+.1%} (at most 5%)")
                self.assertEqual((plan["allocated_bytes"], plan["mapped_bytes"]), (r["allocated_bytes"], r["mapped_bytes"]))
                self.assertLess(abs(off), 0.05)
                subprocess.run(["rm", "-r", self.dir / name], check=True)

    def test_the_plan_of_a_tiny_model_is_what_it_takes(self):
        """Most of that is the process: oneDNN's code, which is partly made by the first matmul, the prepared commands, libraries.
        How many pages of these are counted depends on what the kernel maps around those that are read: 1 MB is that."""
        self.data = self.write("chats.jsonl", *map(chat, range(16)))
        for method in ("lora", "full"):
            for dtype in ("float32", "bfloat16"):
                name = f"tiny, {method}, {dtype}"
                with self.subTest(name):
                    command = super().command(name, "--finetuning-type", method, "--dtype", dtype, "--save-steps", 3, "--device", "cpu")
                    plan = json.loads(self.ok("plan", *command[1:]))
                    r = json.loads(self.ok(*command))
                    for who, planned in (("plan", plan["peak_bytes"]), ("train", r["peak_bytes"])):
                        off = planned - r["peak_rss_bytes"]
                        print(f"{name}: {who} says {planned / 1e6:.1f} MB, peak RSS {r['peak_rss_bytes'] / 1e6:.1f} MB, off by {off / 1e6:+.1f} MB "
                              "(at most 1 MB and 5%)")
                        self.assertLess(abs(off), 1e6 + 0.05 * r["peak_rss_bytes"])

    def test_it_starts_at_once(self):
        self.data = DATA / "train.jsonl"
        times = []
        for i in range(6):
            r = self.train(f"out-{i}", "--max-steps", 1)
            times.append(metrics(self.dir / f"out-{i}")[0]["startup_seconds"])
            self.assertEqual(r["data"]["rows"], 4000)
        median = statistics.median(times[1:])
        print(f"start-up with 4000 chats: {median:.3f} s (at most 0.5), {times[0]:.3f} s the first time")
        self.assertLessEqual(median, 0.5)


if __name__ == "__main__":
    main(Tiny, Large)
