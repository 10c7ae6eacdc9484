#!/usr/bin/env python3
"""What a person sees of a run: its progress on terminals and in logs, hone watch, and the page of hone report.

    screens.py HONE ASSETS DATA
"""
import fcntl
import html.parser
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

from case import HONE, main, run
from train import TrainCase, chat

DRAWN = re.compile(r"\r\x1b\[\?7l(.*?)\x1b\[J(?:\x1b\[A)?\r\x1b\[\?7h", re.S)
PAINT = re.compile(r"\x1b\[[\d;]*m")
VOID = {"meta"}


class Terminal:
    """A terminal of so many columns that a program is started in, and what came to it."""

    def __init__(self, columns, *args, **environment):
        self.master, slave = pty.openpty()
        self.seen = b""
        self.resize(columns)
        clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
        self.process = subprocess.Popen([HONE, *map(str, args)], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        env={**clean, "TERM": "xterm", "LANG": "C.UTF-8", **environment},
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    def text(self):
        return self.seen.decode(errors="replace").replace("\r\n", "\n")

    def read(self, seconds):
        """What comes within this time at most; False at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 1 << 16)
        except OSError:
            piece = b""
        self.seen += piece
        return bool(piece)

    def until(self, pattern, seconds=60):
        """Reads until a text that was not there before."""
        start, end = len(self.text()), time.monotonic() + seconds
        while not re.search(pattern, self.text()[start:]):
            if not self.read(0.2) or time.monotonic() > end:
                raise AssertionError(f"{pattern} did not come: {self.text()[start:][-2000:]!r}")

    def finish(self):
        while self.read(60):
            pass
        os.close(self.master)
        return self.process.wait(60)

    def draws(self):
        """The progress as it was drawn each time: its lines without colours."""
        return [PAINT.sub("", d).replace("\x1b[K", "").split("\n") for d in DRAWN.findall(self.text())]


class Page(html.parser.HTMLParser):
    """A page whose tags are balanced, and which asks for nothing from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.wrong = [], [], "", []
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.wrong += [(tag, key, value) for key, value in attributes
                       if key.startswith("on") or key in ("src", "href") or "url(" in (value or "")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if self.open[-1:] != [tag]:
            self.wrong.append("/" + tag)
        else:
            self.open.pop()

    def handle_data(self, data):
        self.words += data


class Screens(TrainCase):
    def setUp(self):
        super().setUp()
        self.processes = []

    def tearDown(self):
        """A run that is running writes into the folder that is removed."""
        for process in self.processes:
            process.kill()
            process.wait(60)
        super().tearDown()

    def words(self, out, *args):
        """The command without --json: progress and the result are for a person."""
        return [a for a in self.command(out, *args) if a != "--json"]

    def in_terminal(self, columns, *args, **environment):
        terminal = Terminal(columns, *args, **environment)
        self.processes.append(terminal.process)
        return terminal

    def start(self, out, *args):
        process = subprocess.Popen([HONE, *map(str, self.command(out, *args))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def wait_for_step(self, out, step):
        path, end = self.dir / out / "metrics.jsonl", time.monotonic() + 120
        while not (path.exists() and f'"step": {step},' in path.read_text()):
            self.assertLess(time.monotonic(), end, "the step did not come")
            time.sleep(0.01)

    def kill_at(self, out, step, *args):
        process = self.start(out, "--max-steps", 100000, *args)
        self.wait_for_step(out, step)
        process.kill()
        process.wait(60)

    def lines(self, out):
        return [json.loads(line) for line in (self.dir / out / "metrics.jsonl").read_text().splitlines()]

    def train_in_two(self, out):
        """Six steps, of which a second process makes the last two; what it says."""
        self.train(out, "--save-steps", 4)
        shutil.rmtree(self.dir / out / "checkpoint-6")
        result = run(*self.words(out, "--save-steps", 4))
        self.assertIn("after 4 of 6 steps", result.stderr)
        return result.stderr

    def state(self, out):
        return json.loads(self.ok("watch", self.dir / out, "--json"))

    def page(self, out, *args):
        path = pathlib.Path(self.ok("report", self.dir / out, *args).strip())
        page = Page(path.read_text())
        self.assertEqual(page.wrong, [])
        self.assertEqual({"script", "iframe", "img", "link", "a"} & set(page.tags), set())
        self.assertNotRegex(path.read_text(), r"https?://|@import|javascript:")
        return page

    # --- progress --------------------------------------------------------------------------------------------------------

    def test_progress_fits_every_width(self):
        for columns in (10, 40, 80, 200):
            with self.subTest(columns=columns):
                terminal = self.in_terminal(columns, *self.words(f"out-{columns}", "--eval-data", self.valid, "--eval-steps", 3,
                                                                 "--sample-prompt", "What is number 3?", "--sample-length", 32))
                self.assertEqual(terminal.finish(), 0, terminal.text())
                draws = terminal.draws()
                self.assertGreater(len(draws), 6)
                self.assertLess(max(len(line) for d in draws for line in d), columns)
                if columns < 40:
                    continue
                last = draws[-1]
                self.assertRegex(last[0], r"^step 6/6 .*100% .*ETA 0:00$")
                self.assertRegex(last[1], r"loss \d+\.\d{4} .* \d+ tok/s")
                shown = "\n".join(line for d in draws for line in d)
                for text in ("validating 0/1", "sampling 0/32", "saving", "ETA ?"):
                    self.assertIn(text, shown)
                for text, least in (("\u2588", 40), ("mean of 10 steps", 80), ("val ", 80), ("mem ", 80), ("epoch 1.50", 200), ("\u2501" * 45, 80)):
                    self.assertEqual(text in last[0] + last[1], columns >= least, (columns, text, last))
                self.assertIn("\x1b[32m", terminal.text())
                self.assertTrue(re.search(r"\x1b\[J(?!.*\x1b\[\?7l)", terminal.text(), re.S))       # it is cleared at the end

    def test_progress_moves_in_validations_and_samples(self):
        valid = self.write("many.jsonl", *(chat(i) for i in range(1500)))
        prompts = self.write("prompts.txt", *(f"What is number {i}?" for i in range(40)))     # one takes less time than is drawn again
        terminal = self.in_terminal(80, *self.words("out", "--eval-data", valid, "--sample-prompts", prompts, "--sample-length", 250))
        self.assertEqual(terminal.finish(), 0, terminal.text())
        for what in ("validating", "sampling"):
            parts = [int(m[1]) for d in terminal.draws() for line in d if (m := re.match(rf"{what} (\d+)/", line))]
            self.assertGreater(len(set(parts)), 1, what)

    def test_lines_that_stay_are_broken_between_words(self):
        terminal = self.in_terminal(40, *self.words("out"))
        self.assertEqual(terminal.finish(), 0)
        staying = DRAWN.sub("", terminal.text()).replace("\r\x1b[J", "").split("\n")
        start = [line for line in staying[:staying.index(next(s for s in staying if s.startswith("started after")))] if " /" not in line]
        self.assertTrue(all(len(line) <= 40 or " " not in line.strip() for line in start), start)
        self.assertTrue(any(line.startswith(" " * 12) for line in start), start)

    def test_a_terminal_may_be_resized(self):
        terminal = self.in_terminal(120, *self.words("out", "--max-steps", 100000, "--save-steps", 0))
        terminal.until(r"step \d{2,}/")
        self.assertTrue(any(80 < len(d[0]) < 120 for d in terminal.draws()))
        for columns in (40, 150, 25):
            terminal.resize(columns)
            before = len(terminal.draws())
            while len(terminal.draws()) < before + 8:
                self.assertTrue(terminal.read(5))
            self.assertLess(max(len(line) for d in terminal.draws()[before + 2:] for line in d), columns)
        terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(terminal.finish(), 10)
        self.assertIn("hone: SIGTERM: the\ncurrent step is finished\n", terminal.text())

    def test_a_long_step_is_drawn_again_when_the_size_changes_and_as_time_passes(self):
        """Between two events nothing but the thread that waits for signals can."""
        self.data = self.write("long.jsonl", *(chat(i, 14) for i in range(4096)))
        terminal = self.in_terminal(100, *self.words("out", "--per-device-train-batch-size", 4096))
        terminal.until(r"step 0/\d+")
        start = time.monotonic()
        for columns in (45, 99) * 5:
            terminal.resize(columns)
            while len(terminal.draws()[-1][0]) != columns - 1:
                self.assertTrue(terminal.read(5))
        self.assertLess(time.monotonic() - start, 6)                    # only by the clock it is once a second
        terminal.until(r" 0:0[1-9] ", 20)
        self.assertIn("step 0/", terminal.draws()[-1][0])
        os.write(terminal.master, b"\x03")
        terminal.until("hone: SIGINT: the current step is finished", 2)
        os.write(terminal.master, b"\x03")
        self.assertEqual(terminal.finish(), -signal.SIGINT)

    def test_colour_and_signs_are_for_terminals_that_have_them(self):
        args = self.words("out", "--resume", "none")
        for environment, paint, signs in (({}, True, True), ({"NO_COLOR": "1"}, False, True), ({"LANG": "C"}, True, False),
                                          ({"NO_COLOR": ""}, True, True)):
            with self.subTest(environment=environment):
                terminal = self.in_terminal(80, *args, **environment)
                self.assertEqual(terminal.finish(), 0)
                self.assertTrue(terminal.draws())
                self.assertEqual(bool(PAINT.search(terminal.text())), paint)
                self.assertEqual(bool(re.search("[\u2501\u2588]", terminal.text())), signs)
        for environment in ({"TERM": "dumb"},):
            terminal = self.in_terminal(80, *args, **environment)
            self.assertEqual(terminal.finish(), 0)
            self.assertNotIn("\x1b", terminal.text())
            self.assertIn("step 6/6, epoch 1.50, loss ", terminal.text())

    def test_a_log_has_plain_lines(self):
        result = run(*self.words("out", "--eval-data", self.valid))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotRegex(result.stdout + result.stderr, "[\x1b\r]")
        self.assertRegex(result.stderr, r"(?m)^step 6/6, epoch 1\.50, loss \d\.\d{4} \(mean of 10 steps\), \d+ tok/s, engine \d+%, \d+:\d\d, ETA 0:00$")

    def test_one_step_of_one_row_is_told_as_one(self):
        self.data = self.write("one.jsonl", chat(1))
        result = run(*self.words("out", "--max-steps", 1))
        self.assertRegex(result.stderr, r"(?m)^data +1 row, (.|\n)*^run +1 step, ")
        self.assertRegex(result.stdout, r"in the last of 1 step\n")

    def test_hone_eval_has_the_same_progress(self):
        data = self.write("many.jsonl", *(chat(i) for i in range(3000)))
        terminal = self.in_terminal(60, "eval", "--model", self.command("out")[2], "--data", data)
        self.assertEqual(terminal.finish(), 0, terminal.text())
        self.assertRegex(terminal.draws()[0][0], r"^batch \d+/\d+ .*ETA ")
        self.assertLess(max(len(line) for d in terminal.draws() for line in d), 60)

    def test_the_mean_goes_on_where_a_run_resumes(self):
        text = self.train_in_two("out")
        losses = [line["loss"] for line in self.lines("out") if "grad_norm" in line]
        self.assertEqual(len(losses), 6, text)
        weights = [0.9 ** (6 - i) for i in range(1, 7)]
        mean = sum(w * x for w, x in zip(weights, losses)) / sum(weights)
        self.assertIn(f"step 6/6, epoch 1.50, loss {mean:.4f} (mean of 10 steps)", text)

    # --- run.json --------------------------------------------------------------------------------------------------------

    def test_a_run_says_what_it_is_made_from(self):
        for out in ("a", "b"):
            self.train(out, "--eval-data", self.valid)
        a, b = (json.loads((self.dir / out / "run.json").read_text()) for out in ("a", "b"))
        trainer = json.loads((self.dir / "a/checkpoint-6/trainer_state.json").read_text())
        self.assertEqual({key: a["digests"][key] for key in ("base", "data", "eval_data")}, {key: trainer[key] for key in ("base", "data", "eval_data")})
        self.assertEqual((a["digests"], a["program"], a["plan"]["table"][0]), (b["digests"], b["program"], b["plan"]["table"][0]))
        self.assertRegex(a["program"]["xxh128"] + a["digests"]["options"], "^[0-9a-f]{64}$")
        self.assertEqual((a["run"], a["options"]["learning_rate"], a["given"]["max_steps"]), (trainer["run"], "0.01", "--max-steps"))
        self.assertEqual((a["data"]["rows"], a["data"]["eval"]["rows"]), (16, 4))
        self.assertEqual([(p["from_step"], p["step"], p["how"]) for p in a["pieces"]], [(0, 6, "finished")])
        self.assertNotEqual(self.train("c", "--learning-rate", 0.02) and json.loads((self.dir / "c/run.json").read_text())["digests"]["options"],
                            a["digests"]["options"])

    def test_a_run_that_starts_over_keeps_what_the_other_said(self):
        self.train("out")
        before = (self.dir / "out/run.json").read_text()
        self.train("out", "--resume", "none")
        self.assertEqual((self.dir / "out/earlier-1/run.json").read_text(), before)

    # --- hone watch ------------------------------------------------------------------------------------------------------

    def test_a_live_run_is_watched_until_it_is_stopped(self):
        process = self.start("out", "--max-steps", 100000, "--save-steps", 0, "--eval-data", self.valid, "--eval-steps", 20)
        self.wait_for_step("out", 5)
        state = self.state("out")
        self.assertEqual((state["state"], state["pid"], state["steps"], state["method"]), ("running", process.pid, 100000, "lora"))
        self.assertGreater(state["step"], 0)
        self.assertGreater(state["seconds_left"], 0)
        self.assertEqual(state["smoothing"], "exponential mean of about 10 steps")
        for columns in (40, 120):
            terminal = self.in_terminal(columns, "watch", self.dir / "out")
            terminal.until(r"step \d+: validation loss")
            terminal.until(r"step \d+/100000")
            draws = terminal.draws()            # those before Ctrl-C, at which a terminal throws away what was not read yet, half lines too
            os.write(terminal.master, b"\x03")
            self.assertEqual(terminal.finish(), 10)
            self.assertIn("the run goes on", terminal.text())
            self.assertLess(max(len(line) for d in draws for line in d), columns)
        log = subprocess.Popen([HONE, "watch", str(self.dir / "out")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        out = ""
        while "\nstep " not in out and log.poll() is None:
            out += log.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out += log.communicate(timeout=60)[0]
        self.assertEqual(log.returncode, 10, out)
        self.assertRegex(out, r"(?m)^step \d+/100000, epoch ")
        self.assertRegex(out, r"(?m)^stopped +step \d+ of 100000$")
        self.assertNotIn("\x1b", out)
        self.assertEqual(process.wait(60), 10)
        self.assertEqual(self.state("out")["state"], "stopped")

    def test_a_finished_run_is_reported_at_once(self):
        r = self.train("out", "--eval-data", self.valid)
        out = self.ok("watch", self.dir / "out")
        self.assertRegex(out, r"(?m)^finished +step 6 of 6$")
        self.assertIn(f"{r['first_eval_loss']:.4f} -> {r['eval_loss']:.4f}", out)
        state = self.state("out")
        self.assertEqual((state["state"], state["step"], state["pid"], state["seconds_left"]), ("finished", 6, 0, None))
        self.assertAlmostEqual(state["best"]["eval_loss"], r["best_eval_loss"])
        self.assertAlmostEqual(state["last_loss"], r["loss"], 6)
        self.assertFalse((self.dir / "out/run.lock").exists())          # asking must not make it

    def test_a_process_that_finds_nothing_to_do_changes_no_figure(self):
        self.train("out", "--eval-data", self.valid)
        before, page = self.state("out"), self.page("out").words
        told = self.ok("watch", self.dir / "out")
        self.train("out", "--eval-data", self.valid)
        after = self.state("out")
        self.assertGreater(before["seconds"], 0)
        self.assertEqual({**before, "resumes": 1, "peak_bytes": after["peak_bytes"]}, after)
        self.assertEqual(self.ok("watch", self.dir / "out"), told)
        figures = re.search("tokens per second.*steps and validations.*memory, at its peak", page, re.S)[0]
        self.assertIn(figures, self.page("out").words)

    # Fails if one of them takes a mean over steps, counts the time of validations, or forgets the steps before a resume.
    def test_a_run_has_one_speed_in_train_watch_and_report(self):
        words = "of rows, trained or not, in the time of the steps"
        result = self.train("json", "--eval-data", self.valid, "--eval-steps", 1)
        self.assertEqual(result["tokens_per_second"], self.state("json")["tokens_per_second"])
        self.train_in_two("out")
        shutil.rmtree(self.dir / "out/checkpoint-6")
        told = run(*self.words("out", "--save-steps", 4))              # its last two steps again, and what it says in words
        steps = [line for line in self.lines("out") if "step_seconds" in line]
        speed = sum(line["tokens"] for line in steps) / sum(line["step_seconds"] for line in steps)
        self.assertEqual(len(steps), 6)
        self.assertIn(f"speed       {speed:.0f} tokens/s {words}\n", told.stdout)
        self.assertIn(f"speed       {speed:.0f} tokens/s {words}\n", self.ok("watch", self.dir / "out"))
        self.assertAlmostEqual(self.state("out")["tokens_per_second"] / speed, 1, 6)
        self.assertRegex(self.page("out").words, rf"\b{speed:.0f}\s*tokens per second {words}")

    def test_the_time_is_that_of_all_processes(self):
        self.train_in_two("out")
        self.assertAlmostEqual(self.state("out")["seconds"], sum(line.get("step_seconds", 0) for line in self.lines("out")), 6)

    def test_early_stopping_and_the_step_of_the_result_are_reported(self):
        other = [chat(i) for i in range(6)]
        for row in other:                                               # its loss goes down, and later up
            row["messages"][1]["content"] = "Nothing of the kind: Debian has no such thing."
        r = self.train("out", "--eval-data", self.write("against.jsonl", *other), "--eval-steps", 4, "--max-steps", 40, "--learning-rate", 0.02,
                       "--early-stopping-patience", 1, "--load-best-model-at-end")
        self.assertTrue(r["stopped_early"] and 0 < r["saved_step"] < r["steps"], r)
        out = self.ok("watch", self.dir / "out")
        self.assertRegex(out, rf"(?m)^finished +step {r['steps']} of 40, then early stopping$")
        self.assertRegex(out, rf"(?m)^adapter +of step {r['saved_step']}, which has the lowest validation loss$")
        state = self.state("out")
        self.assertEqual((state["stopped_early"], state["result_step"]), (True, r["saved_step"]))
        page = self.page("out").words
        self.assertIn("finished, stopped early", page)
        self.assertIn(f"The adapter is that of step {r['saved_step']}, which has the lowest validation loss.", page)

    def test_a_run_that_is_starting_is_told_without_what_is_not_known(self):
        out = self.dir / "out"
        out.mkdir()
        with (out / "run.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("4711 here\n")
            lock.flush()
            for columns in (40, 120):
                terminal = self.in_terminal(columns, "watch", out)
                terminal.until("starting")
                os.write(terminal.master, b"\x03")
                self.assertEqual(terminal.finish(), 10)
                self.assertRegex(terminal.text(), r"(?m)^process     4711$")
                self.assertNotRegex(terminal.text(), r"0/0|ETA|, in ")
        result = run("watch", out)
        self.assertRegex(result.stdout, r"(?m)^killed      before its first step$")
        self.assertNotIn("time", result.stdout)
        self.assertRegex(result.stderr, "second Ctrl-C.* starts it over: there is no checkpoint")

    def test_a_killed_run_is_known_from_its_lock(self):
        self.kill_at("out", 3, "--save-steps", 2)
        self.assertTrue((self.dir / "out/run.lock").exists())
        self.assertEqual(self.state("out")["state"], "killed")
        result = run("watch", self.dir / "out")
        self.assertEqual(result.returncode, 10)
        self.assertIn("ended without a word after step", result.stderr)
        self.assertIn("hone train command resumes it", result.stderr)

    def test_a_failed_run_says_why(self):
        result = run(*self.command("out", "--learning-rate", 1000, "--max-bad-steps", 2, "--max-steps", 50))
        self.assertEqual(result.returncode, 9, result.stderr)
        state = self.state("out")
        self.assertEqual(state["state"], "failed")
        self.assertIn("2 steps in a row were bad", state["why"])
        self.assertEqual(run("watch", self.dir / "out").returncode, 9)
        self.assertIn("2 steps in a row were bad", self.page("out").words)

    def test_mistakes(self):
        (self.dir / "empty").mkdir()
        for command in ("watch", "report"):
            self.fails(2, command, says=[f"hone {command} OUT", "--output"])
            self.fails(3, command, self.dir / "nothing", says=["no such directory", "--output"])
            self.fails(2, command, self.dir / "empty", says=["no run was here"])
            self.fails(2, command, self.data, says=["is a file", "the directory that it lies in"])
            self.fails(2, command, "a", "b", says=["unexpected argument 'b'"])
            self.fails(2, command, "--max-steps", 3, says=["not an option of hone " + command])
        self.train("out")
        self.fails(2, "watch", self.dir / "out/checkpoint-6", says=["no run was here", "The directory above it has"])
        self.fails(3, "report", self.dir / "out", "--output", self.dir / "no/such/page.html", says=["page.html"])
        for name in ("page.pdf", "page", "html"):
            self.fails(2, "report", self.dir / "out", "--output", self.dir / name, says=[name, "ends in .html"])
            self.assertFalse((self.dir / name).exists())
        self.ok("report", self.dir / "out", "--output", self.dir / "PAGE.HTM")

    # --- hone report -----------------------------------------------------------------------------------------------------

    def test_a_report_has_all_of_a_run(self):
        self.train("out", "--eval-data", self.valid, "--eval-steps", 3, "--sample-prompt", "What is <b>3</b>?", "--sample-length", 32)
        page = self.page("out")
        run_file = json.loads((self.dir / "out/run.json").read_text())
        for text in ("finished", "of 6 steps", "mean of about 10 steps", "Validation loss", "Learning rate", "Gradient norm", "Tokens per second",
                     "What is <b>3</b>?", "before", "planned", "the process itself", "rows used", str(self.data), "--learning-rate=0.01",
                     "checkpoint-6", "adapter_model.safetensors", *run_file["digests"].values(), run_file["program"]["xxh128"]):
            self.assertIn(text, page.words)
        self.assertEqual(page.tags.count("svg"), 5)
        self.assertEqual(page.tags.count("circle"), 2 * 3)
        self.assertNotIn("b", page.tags[page.tags.index("h2"):])        # that of the prompt is text
        elsewhere = self.dir / "page.html"
        report = json.loads(self.ok("report", "--output", elsewhere, "--json", self.dir / "out"))
        self.assertEqual((report["page"], report["state"], report["step"]), (str(elsewhere), "finished", 6))
        self.assertEqual(elsewhere.read_text(), (self.dir / "out/report.html").read_text())

    def test_a_report_of_a_run_that_was_killed_and_resumed(self):
        steps = ("--max-steps", 60, "--save-steps", 4, "--per-device-train-batch-size", 16)
        process = self.start("out", *steps)
        self.wait_for_step("out", 9)
        process.kill()
        process.wait(60)
        page = self.page("out")
        self.assertIn("ended without a word", page.words)
        self.assertIn("killed", page.words)
        with (self.dir / "out/metrics.jsonl").open("a") as file:
            file.write('{"step": 12, "lo')                              # cut off by a crash
        self.page("out")
        self.train("out", *steps)
        page = self.page("out")
        state = self.state("out")
        self.assertEqual((state["state"], state["step"], state["resumes"], state["unreadable_lines"]), ("finished", 60, 1, 0))
        pieces = json.loads((self.dir / "out/run.json").read_text())["pieces"]
        self.assertEqual([p.get("how") for p in pieces], [None, "finished"])
        self.assertGreaterEqual(pieces[1]["from_step"], 8)

    def test_an_axis_has_numbers_as_people_write_them(self):
        (self.dir / "out").mkdir()
        for most, ticks in ((17000, ["0", "5000", "10k", "15k"]), (3e6, ["0", "1M", "2M", "3M"]), (8, ["0", "2", "4", "6", "8"])):
            (self.dir / "out/metrics.jsonl").write_text("".join(f'{{"step": {i}, "tokens_per_second": {most * i / 4}}}\n' for i in range(1, 5)))
            text = (self.page("out") and self.dir / "out/report.html").read_text()
            speed = text[text.index('aria-label="Tokens per second"'):]
            self.assertEqual(re.findall(r'text-anchor="end">([^<]*)</text>', speed), [*ticks, "step"])

    def test_a_report_of_a_run_that_is_running(self):
        self.start("out", "--max-steps", 100000, "--save-steps", 0)
        self.wait_for_step("out", 3)
        self.assertIn("The run is still running", self.page("out").words)

    def test_hostile_files_make_a_page_all_the_same(self):
        self.train("out", "--eval-data", self.valid)
        evil = '"\'><script>alert(1)</script><img src=x onerror=alert(1)>'
        good = (self.dir / "out/run.json").read_text()
        tree = json.loads(good)

        def poison(value):
            if isinstance(value, dict):
                return {key + evil if key not in tree else key: poison(v) for key, v in value.items()} | value | {"how": evil, "block": evil}
            if isinstance(value, list):
                return [poison(v) for v in value]
            return evil if isinstance(value, str) else value

        lines = (self.dir / "out/metrics.jsonl").read_text()
        metrics = {
            "texts": lines.replace("lora", evil.replace('"', "'")) + json.dumps({"event": "sample", "step": 1, "prompt": evil, "text": evil}) + "\n",
            "numbers": lines + "".join(json.dumps({"step": s, "loss": v, "grad_norm": v, "learning_rate": v, "tokens_per_second": v}) + "\n"
                                       for s, v in ((7, 1e308), (8, -1e308), (9, 0), (10, 1e-320), (2**60, 5), (-5, 3), ("x", "y"), (11, None), (11.5, [1])))
                       + '{"event": "eval", "step": 3, "eval_loss": 1e999}\n{"event": "eval", "step": 1e5, "eval_loss": "x"}\n{"event": "start", "steps": -1}\n',
            "not JSON": "\x00\xff\n{]\n[]\n7\nnull\n" + "[" * 100000 + "\n" + '{"step": 1' + "\n" + "x" * 3_000_000 + "\n",
            "empty": "", "one line": '{"step": 1, "loss": 2.5}\n', "only a header": lines.split("\n")[0] + "\n",
            "cut": lines[:-20], "many": "".join(f'{{"step": {i}, "loss": {1 / i}}}\n' for i in range(1, 20001)),
        }
        runs = {"good": good, "poisoned": json.dumps(poison(tree)), "a list": "[]", "cut": good[:200], "empty": "", "wrong types": json.dumps(
            {key: 7 if isinstance(value, (dict, list)) else {} for key, value in tree.items()}), "lists": json.dumps({key: [[]] for key in tree}),
            "numbers": json.dumps({"plan": {"peak_bytes": 1, "table": [{"block": "x", "bytes": -5}, {"bytes": 2**62}, 7]}, "data": {"rows": -3}, "pieces": [7]})}
        for m, text in metrics.items():
            for r, run_text in runs.items():
                with self.subTest(metrics=m, run=r):
                    (self.dir / "out/metrics.jsonl").write_text(text, errors="surrogateescape")
                    (self.dir / "out/run.json").write_text(run_text)
                    page = self.page("out")
                    self.assertNotRegex(page.words, r"\bnan\b|\binf\b")
                    self.state("out")
        (self.dir / "out/metrics.jsonl").unlink()
        self.page("out")
        (self.dir / "out/run.json").unlink()
        self.fails(2, "report", self.dir / "out", says=["no run was here"])

    def test_a_name_may_be_anything_that_the_system_takes(self):
        out = "a <b>'&\"; x"
        self.train(out)
        self.assertIn(out, self.page(out).words)


if __name__ == "__main__":
    main(Screens, Screens)
