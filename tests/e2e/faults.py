#!/usr/bin/env python3
"""What a run does when something outside it goes wrong: signals, files that change under it, disks that are full.

    faults.py HONE ASSETS DATA
"""
import itertools
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from case import HONE, SANITIZED, TINY, main, run
from stop import stop_when
from train import TrainCase, chat, checkpoints, metrics

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
NOT_THEIRS = "handle_segv=0:handle_sigbus=0"                # a sanitizer leaves faults to hone's own handler


def start_with(ignored, limit):
    """What is ignored, whatever the tests themselves were started with, and how large a file may be."""
    for number in (*STOPS, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


class Faults(TrainCase):
    def start(self, out, *args, ignored=(), limit=None, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([HONE, *map(str, self.command(out, *args))], text=True, restore_signals=False,
                                   preexec_fn=lambda: start_with(ignored, limit), **options)
        self.addCleanup(process.kill)
        return process

    def wait_for_step(self, process, out, step):
        path = self.dir / out / "metrics.jsonl"
        stop_when(process, lambda: path.exists() and f'"step": {step},' in path.read_text())
        process.send_signal(signal.SIGCONT)

    def finish(self, process, code):
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, code, err)
        return err

    @staticmethod
    def ticks(process):
        """The time that it has computed."""
        with open(f"/proc/{process.pid}/stat") as file:
            return int(file.read().split(") ")[1].split()[11])

    def start_slow(self, out):
        """A run in its first step, which takes a while."""
        self.data = self.write("long.jsonl", *(chat(i, 14) for i in range(1024)))
        process = self.start(out, "--per-device-train-batch-size", 1024)
        while not process.stderr.readline().startswith("started after "):
            self.assertIsNone(process.poll(), "it did not start")
        first = self.ticks(process)
        while self.ticks(process) < first + 3:
            time.sleep(0.002)
        return process

    def steps(self, out):
        return [s["step"] for s in metrics(self.dir / out)[1]]

    # --- signals ---------------------------------------------------------------------------------------------------------

    def test_a_request_to_stop_ends_a_run_with_a_checkpoint(self):
        for number in STOPS:
            with self.subTest(number=number):
                out = number.name
                process = self.start(out, "--max-steps", 100000, "--save-steps", 0)
                self.wait_for_step(process, out, 2)
                process.send_signal(number)
                err = self.finish(process, 10)
                self.assertRegex(err, rf"(?m)^hone: {out}: the current step is finished and the state saved; a second ")
                step = int(re.search(r"(?m)^hone: stopped after step (\d+); the state is in \S+/checkpoint-\1\.", err)[1])
                self.assertEqual((checkpoints(self.dir / out), self.steps(out)[-1]), ([step], step))

    def test_a_terminal_that_is_lost_twice_still_costs_no_step(self):
        """Both the kernel and the shell send SIGHUP."""
        process = self.start_slow("out")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        self.finish(process, 10)
        self.assertEqual(checkpoints(self.dir / "out"), [1])

    def test_a_request_to_stop_is_answered_at_once_and_a_second_one_ends_the_run(self):
        process = self.start_slow("out")
        process.send_signal(signal.SIGINT)
        self.assertRegex(process.stderr.readline(), "^hone: SIGINT: .* ends at once, without saving$")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process, -signal.SIGINT),
                         "hone: SIGINT again: ended at once; what was done since the last checkpoint is lost\n")
        self.assertEqual((self.steps("out"), checkpoints(self.dir / "out")), ([], []))

    def test_a_fault_that_another_process_sends_ends_it_at_once(self):
        """As a watchdog does. Seen to fail: the first one was taken for a fault that happens again, and the run went on; in a matmul
        it was reported as memory that ran out."""
        environment = {**os.environ, "ASAN_OPTIONS": NOT_THEIRS, "TSAN_OPTIONS": NOT_THEIRS}
        for number, i in itertools.product((signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS), range(4)):
            process = self.start(f"{number.name}{i}", "--max-steps", 100000, "--save-steps", 0, env=environment)
            self.wait_for_step(process, f"{number.name}{i}", 2)
            process.send_signal(number)
            self.finish(process, -number)

    def test_no_handler_interrupts_a_thread_that_computes(self):
        """Its frame would overwrite what oneDNN keeps below the end of the stack: heaps were corrupted, in a few of a hundred stops."""
        process = self.start("out", "--max-steps", 100000, "--save-steps", 0)
        self.wait_for_step(process, "out", 2)
        status = [pathlib.Path(task, "status").read_text() for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()]
        mask = sum(1 << number - 1 for number in STOPS)
        handled, *blocked = (int(re.search(rf"{key}:\s+(\w+)", text)[1], 16) & mask
                             for key, texts in (("SigCgt", status[:1]), ("SigBlk", status)) for text in texts)
        self.assertEqual((handled, sum(b != mask for b in blocked) <= 1), (0, True))
        process.send_signal(signal.SIGTERM)
        self.finish(process, 10)

    def test_what_was_ignored_at_the_start_stays_ignored(self):
        process = self.start("out", "--max-steps", 40, ignored=STOPS)
        self.wait_for_step(process, "out", 2)
        for number in STOPS:
            process.send_signal(number)
        self.assertNotIn("SIG", self.finish(process, 0))
        self.assertEqual(self.steps("out"), list(range(1, 41)))

    def test_a_reader_of_the_progress_may_leave(self):
        """As head does."""
        read, write = os.pipe()
        process = self.start("out", stdout=write, stderr=write)
        os.close(write)
        os.read(read, 1)
        os.close(read)
        process.wait(600)
        self.assertEqual(process.returncode, 0)                 # the summary could not be printed, but
        self.assertEqual(self.steps("out"), [1, 2, 3, 4, 5, 6])
        self.assertTrue((self.dir / "out/adapter_model.safetensors").exists())

    def test_a_summary_that_cannot_be_printed_is_a_warning(self):
        """Exit code 3 means: try again. A finished run that is started again ends the same way."""
        with open("/dev/full", "w") as full:
            process = self.start("out", stdout=full)
            self.assertIn("the run has ended well", self.finish(process, 0))

    def large_model(self):
        """118 million weights that are zeros, in a file of holes."""
        model = self.dir / "large"
        shutil.copytree(TINY, model, copy_function=shutil.copy)
        config = json.loads((model / "config.json").read_text())
        config.update(hidden_size=1024, intermediate_size=4096, num_hidden_layers=8)
        (model / "config.json").write_text(json.dumps(config))
        size = dict(q=(1024, 1024), k=(512, 1024), v=(512, 1024), o=(1024, 1024), gate=(4096, 1024), up=(4096, 1024), down=(1024, 4096))
        shapes = {"model.embed_tokens.weight": (512, 1024), "lm_head.weight": (512, 1024), "model.norm.weight": (1024,)}
        for layer in (f"model.layers.{i}." for i in range(8)):
            shapes |= {f"{layer}{'mlp' if len(name) > 1 else 'self_attn'}.{name}_proj.weight": shape for name, shape in size.items()}
            shapes |= {f"{layer}{name}_layernorm.weight": (1024,) for name in ("input", "post_attention")}
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 4 * math.prod(shape)
            header[name] = dict(dtype="F32", shape=shape, data_offsets=[begin, end])
        text = json.dumps(header).encode()
        with open(model / "model.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
        return model

    def test_an_export_that_is_stopped_leaves_nothing(self):
        """Its parts once stayed next to the output, as large as a model."""
        model = self.large_model()
        for number in (signal.SIGINT, signal.SIGTERM):
            before = set(self.dir.rglob("*"))
            process = subprocess.Popen([HONE, "quantize", "--model", model, "--output", self.dir / "out.gguf", "--type", "q4_k_m"],
                                       text=True, restore_signals=False, preexec_fn=lambda: start_with((), None),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(process.kill)
            while process.poll() is None and not list(self.dir.glob("*.part*")):
                time.sleep(0.002)
            process.send_signal(number)
            self.assertEqual(self.finish(process, 10),
                             f"hone: {number.name}: stopping; what is not complete is removed; a second Ctrl-C or SIGTERM ends at once\n"
                             "hone: stopped on request; what was written so far was removed\n")
            self.assertEqual(set(self.dir.rglob("*")), before)

    # --- files that change -------------------------------------------------------------------------------------------------

    def start_on_a_copy(self, out, *args):
        """A run in its third step, on a model of its own."""
        model = self.dir / "model"
        shutil.copytree(TINY, model, copy_function=shutil.copy)
        process = self.start(out, "--model", model, "--max-steps", 100000, *args)
        self.wait_for_step(process, out, 2)
        return process, model / "model.safetensors"

    def test_a_mapped_file_that_is_truncated_is_named(self):
        process, model = self.start_on_a_copy("model-run", "--save-steps", 0)
        os.truncate(model, 4096)
        self.assertRegex(self.finish(process, 3).splitlines()[-1], rf"^hone: {model}: truncated, .* put the whole file back, and give the same")

        shutil.rmtree(self.dir / "model")
        process, _ = self.start_on_a_copy("cache-run", "--save-steps", 0)
        tokens, = self.dir.glob("cache/hone/tokens/*/tokens")           # its name has changed since it was mapped, or not
        os.truncate(tokens, 0)
        self.assertIn(f"hone: {tokens}: truncated", self.finish(process, 3).splitlines()[-1])

    def test_a_model_is_saved_only_next_to_the_files_that_it_was_trained_with(self):
        """Seen to fail: a new download in the place of --model gave its tokenizer to weights that were trained with the old one."""
        model = self.dir / "model"
        shutil.copytree(TINY, model)
        process = self.start("out", "--model", model, "--finetuning-type", "full", "--max-steps", 100000, "--save-steps", 0)
        self.wait_for_step(process, "out", 2)
        config = model / "tokenizer_config.json"
        config.write_text(config.read_text() + "\n")
        process.send_signal(signal.SIGTERM)
        self.assertIn(f"hone: {model}: its configuration, tokenizer or chat template was changed", self.finish(process, 3))
        self.assertEqual(checkpoints(self.dir / "out"), [])

    def test_what_was_computed_with_a_file_that_changed_is_not_saved(self):
        process, model = self.start_on_a_copy("out", "--save-steps", 50)
        size = model.stat().st_size
        with open(model, "r+b") as file:                                # in place, and no byte more
            file.seek(size // 2)
            file.write(b"\0\0\0\0")
        err = self.finish(process, 3)
        self.assertRegex(err.splitlines()[-1], rf"^hone: {model} was changed while it was in use \({size} bytes then, {size} now\)")
        self.assertEqual((checkpoints(self.dir / "out"), list((self.dir / "out").glob("*.part"))), ([], []))

    def test_a_file_that_is_replaced_is_still_what_it_was(self):
        process, model = self.start_on_a_copy("out", "--max-steps", 40)
        (self.dir / "new").write_bytes(b"not a model")
        os.replace(self.dir / "new", model)
        self.finish(process, 0)
        self.assertEqual(self.steps("out")[-1], 40)

    def test_a_run_whose_output_was_moved_leaves_the_next_ones_alone(self):
        """Seen to fail: the first run made the folder again, and its checkpoints, result and lines came between those of the second."""
        first = self.start("out", "--max-steps", 120, "--save-steps", 60)
        self.wait_for_step(first, "out", 2)
        (self.dir / "out").rename(self.dir / "moved")
        second = self.start("out", "--max-steps", 100000, "--save-steps", 100000, "--learning-rate", 0.02)
        self.wait_for_step(second, "out", 2)
        self.assertRegex(self.finish(first, 3).splitlines()[-1], rf"^hone: {self.dir}/out: was removed, moved or replaced while this run")
        self.assertTrue((self.dir / "out/run.lock").read_text().startswith(f"{second.pid} "))
        second.send_signal(signal.SIGTERM)
        self.finish(second, 10)
        steps = self.steps("out")
        self.assertEqual((checkpoints(self.dir / "out"), steps), ([steps[-1]], list(range(1, steps[-1] + 1))))
        self.assertEqual([p["how"] for p in json.loads((self.dir / "out/run.json").read_text())["pieces"]], ["stopped"])

    # --- disks -----------------------------------------------------------------------------------------------------------------

    def test_paths_that_are_not_utf8_cost_no_work(self):
        """The model's ended a run at its first checkpoint, that of the data at its start and every inspection: "out of memory"."""
        model, data = (self.dir / os.fsdecode(name) for name in (b"mod\xff", b"chats\xff.jsonl"))
        model.symlink_to(TINY)
        data.write_text(self.data.read_text() + "not a row\n")
        result = run(*self.command("out", "--model", model, "--data", data, "--bad-rows", "skip", "--max-steps", 2))
        self.assertEqual((result.returncode, result.stderr.count("this path is not UTF-8")), (0, 1), result.stderr)
        self.assertNotIn("out of memory", result.stderr)
        adapter, kept = (json.loads((self.dir / "out" / name).read_text()) for name in ("adapter_config.json", "run.json"))
        self.assertEqual([pathlib.Path(name).name for name in (adapter["base_model_name_or_path"], kept["model"],
                                                               kept["data"]["files"][0]["path"], kept["data"]["longest"]["path"])],
                         ["mod?", "mod?", "chats?.jsonl", "chats?.jsonl"])
        self.assertIn("chats?.jsonl:17", kept["data"]["skipped"][0])
        told = json.loads(run("inspect", "data", "--model", TINY, "--data", data, "--json").stdout)
        self.assertIn("chats?.jsonl", told["files"][0]["path"])

    def test_a_damaged_run_file_is_told_when_it_is_replaced(self):
        """Its earlier processes were lost without a word."""
        self.train("out", "--save-steps", 3)
        shutil.rmtree(self.dir / "out/checkpoint-6")
        (self.dir / "out/run.json").write_text('{"run": "')
        result = run(*self.command("out", "--save-steps", 3))
        self.assertEqual((result.returncode, result.stderr.count("without the earlier processes of this run")), (0, 1), result.stderr)
        self.assertEqual(len(json.loads((self.dir / "out/run.json").read_text())["pieces"]), 1)

    def test_an_output_that_cannot_be_written_is_told_before_anything_is_encoded(self):
        for output, named in ((self.data / "below-a-file", self.data), ("/proc/self/nothing",) * 2):
            self.fails(3, *self.command("out", "--output", output), says=[f"{named}: cannot make the directory"])
        self.fails(3, *self.command("out", "--output", "/proc/self"), says=["/proc/self/run.lock: cannot be made there"])    # it had no end
        self.assertFalse((self.dir / "cache").exists())

    def test_checkpoints_that_do_not_fit_on_the_disk_are_told_before_the_first_step(self):
        """Seen to fail: --resume none had moved all that was there before it was refused."""
        many = 10**12
        self.train("out")
        before = sorted((self.dir / "out").rglob("*"))
        result = run(*self.command("out", "--max-steps", many, "--save-steps", 1, "--save-total-limit", many, "--resume", "none"))
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(result.stderr.splitlines()[-1], r"^hone: \S+/out: the run needs [\d.]+ GB of disk, and [\d.]+ GB are free: it adds up to 1000000000000 ")
        self.assertNotIn("step 1/", result.stderr)
        self.assertEqual(sorted((self.dir / "out").rglob("*")), before)

    def test_a_limit_on_files_is_an_error_with_a_name(self):
        """ulimit -f, which without a word ended the program."""
        process = self.start("out", "--save-steps", 3, limit=100_000)
        err = self.finish(process, 3)
        self.assertRegex(err.splitlines()[-1], r"^hone: \S+/out/checkpoint-3\.part/.*: cannot write: File too large\. "
                         "Nothing was saved before: once that is fixed, the same command starts over$")
        self.assertEqual(sorted(p.name for p in (self.dir / "out").iterdir()), ["metrics.jsonl", "run.json"])

    def test_a_save_that_fails_says_what_the_same_command_will_do(self):
        more = "--save-steps", 3, "--max-steps", 100000
        process = self.start("out", *more)
        path = self.dir / "out/metrics.jsonl"
        stop_when(process, lambda: path.exists() and '"step": 4,' in path.read_text())
        process.kill()
        process.communicate()
        self.assertEqual(checkpoints(self.dir / "out"), [3])
        for resume, words in ("auto", ""), (self.dir / "out/checkpoint-3", " with --resume auto"):
            err = self.finish(self.start("out", *more, "--resume", resume, limit=100_000), 3)
            self.assertRegex(err.splitlines()[-1], rf"File too large\. What was saved before stays: once that is fixed, the same command{words} resumes$")
            self.assertEqual(checkpoints(self.dir / "out"), [3])

    @unittest.skipIf(SANITIZED, "a sanitizer takes terabytes of addresses")
    def test_too_few_addresses_are_reported_at_every_limit(self):
        """ulimit -v: just below what a run needs, the main thread's stack could not grow in a step, and SIGSEGV was the answer."""
        def train(limit):
            shutil.rmtree(self.dir / "out", ignore_errors=True)
            return run(*self.command("out", "--max-steps", 1, "--threads", 1),
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

        too_few, enough = 1 << 20, 1 << 32
        while enough - too_few > 1 << 18:
            limit = (too_few + enough) // 2
            too_few, enough = (too_few, limit) if train(limit).returncode == 0 else (limit, enough)
        for limit in range(too_few, too_few - (6 << 20), -(1 << 18)):
            result = train(limit)
            near = limit > too_few - (1 << 20)              # how many a run needs is not the same each time
            self.assertIn(result.returncode, (0, 5) if near else (5,), f"{limit} of {enough} bytes: {result.stderr}")
            if result.returncode:
                self.assertRegex(result.stderr.splitlines()[-1], "^hone: ")


if __name__ == "__main__":
    main(Faults, Faults)
