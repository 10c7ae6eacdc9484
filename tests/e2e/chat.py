#!/usr/bin/env python3
"""hone chat, with lines from a pipe and at a terminal.

    chat.py HONE ASSETS DATA
"""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from case import CHAT, TINY, Case, main
from case import HONE as PROGRAM

HONE = os.path.abspath(PROGRAM)
FEW = ("--max-new-tokens", "12")


class Terminal:
    """The program at a terminal: what it shows, and what is typed."""

    def __init__(self, folder, *args):
        self.mine, its = pty.openpty()
        self.process = subprocess.Popen([HONE, *map(str, args)], stdin=its, stdout=its, stderr=its, start_new_session=True, cwd=folder,
                                        preexec_fn=lambda: fcntl.ioctl(its, termios.TIOCSCTTY, 0))     # Ctrl-C comes from it
        os.close(its)
        self.seen = ""

    def read(self, until, seconds=60):
        """Reads until the text has come; returns what came before it, and forgets both."""
        end = time.monotonic() + seconds
        while until not in self.seen:
            if time.monotonic() > end or not select.select([self.mine], [], [], 1)[0] and self.process.poll() is not None:
                raise AssertionError(f"waiting for {until!r}: {self.seen!r}")
            if select.select([self.mine], [], [], 0)[0]:
                self.seen += os.read(self.mine, 4096).decode(errors="replace").replace("\r\n", "\n")
        before, self.seen = self.seen.split(until, 1)
        return before

    def type(self, text):
        os.write(self.mine, text.encode())

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.mine)


class Chat(Case):
    def chat(self, lines, *args, code=0):
        result = subprocess.run([HONE, "chat", "--model", str(TINY), *FEW, *map(str, args)], input="\n".join(lines), cwd=self.dir,
                                capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def saved(self, name):
        return [json.loads(line)["messages"] for line in (self.dir / name).read_text().splitlines()]

    def answer(self, *args):
        """What hone generate says, without its newline."""
        return self.ok("generate", "--model", TINY, "--prompt", "Hi", *FEW, *args)[:-1]

    def adapter(self):
        data = self.write("chats.jsonl", *[CHAT] * 4)
        self.ok("train", "--model", TINY, "--data", data, "--output", self.dir / "adapter", "--max-steps", 40, "--learning-rate", 0.005,
                "--save-steps", 0)
        return self.dir / "adapter"

    def ended_at_a_terminal(self, *args):
        t = Terminal(self.dir, "chat", "--model", TINY, *args)
        try:
            t.read("> ")
            t.type("Hi\n")
            return t.read("\n> ")
        finally:
            t.close()

    def test_lines_from_a_pipe(self):
        result = self.chat(["Hi", "", "  ", "/save a.jsonl"])
        self.assertEqual(result.stdout, self.answer() + "\n")           # nothing else, and what hone generate says
        self.assertNotIn(">", result.stderr)
        self.assertEqual([m["content"] for m in self.saved("a.jsonl")[0]], ["Hi", self.answer()])

    def test_it_remembers(self):
        self.chat(["Hi", "Hi", "/save a.jsonl", "/reset", "Hi", "/save a.jsonl"])
        both, again = self.saved("a.jsonl")
        self.assertEqual([m["role"] for m in both], ["user", "assistant"] * 2)
        self.assertNotEqual(both[1]["content"], both[3]["content"])     # the second answer saw the first
        self.assertEqual(again, both[:2])                               # and this one did not

    def test_settings(self):
        self.assertEqual(self.chat(["Hi"], "--system", "Be brief.").stdout, self.answer("--system", "Be brief.") + "\n")
        self.assertEqual(self.chat(["/system Be brief.", "Hi"]).stdout, self.answer("--system", "Be brief.") + "\n")
        self.assertEqual(self.chat(["/system", "Hi"], "--system", "Be brief.").stdout, self.answer() + "\n")
        self.chat(["/system Be brief.", "Hi", "/reset", "Hi", "/save a.jsonl"])
        self.assertEqual(self.saved("a.jsonl")[0][0], {"role": "system", "content": "Be brief."})
        drawn = ("--temperature", "2", "--top-p", "0.9", "--seed", "3")
        self.assertEqual(self.chat(["Hi"], *drawn).stdout, self.answer(*drawn) + "\n")

    def test_adapters(self):
        adapter, plain = self.adapter(), self.answer()
        tuned = self.answer("--adapter", adapter)
        self.assertNotEqual(tuned, plain)
        self.assertEqual(self.chat(["Hi"], "--adapter", adapter).stdout, tuned + "\n")
        self.assertEqual(self.chat([f"/adapter {adapter}", "Hi", "/reset", "/adapter none", "Hi"]).stdout, f"{tuned}\n{plain}\n")
        self.chat(["Hi", f"/adapter {adapter}", "Hi", "/save a.jsonl"])         # the conversation stays
        self.assertEqual(len(self.saved("a.jsonl")[0]), 4)

    def test_a_transcript_is_data(self):
        self.chat(["Hi", "/save a.jsonl", "/reset", "//slash", '"""', "two", "lines", '"""', "/save a.jsonl"], "--max-new-tokens", "600",
                  "--temperature", "1.5")
        first, second = self.saved("a.jsonl")
        self.assertEqual([m["content"] for m in second if m["role"] == "user"], ["/slash", "two\nlines"])
        report = json.loads(self.ok("inspect", "data", "--model", TINY, "--data", self.dir / "a.jsonl", "--excess-length", "truncate", "--json"))
        self.assertEqual((report["rows"], report.get("bad_rows", 0)), (2, 0), report)
        self.chat(["Hi", "/save b.jsonl"], "--adapter", self.adapter(), "--max-new-tokens", "100")
        self.assertEqual([list(m) for m in self.saved("b.jsonl")[0]], [["role", "content"]] * 2)    # it has learned to end
        self.ok("train", "--model", TINY, "--data", self.dir / "b.jsonl", "--output", self.dir / "out", "--max-steps", 1)

    def test_an_answer_that_was_cut_off_is_not_trained(self):
        result = self.chat(["Hi", "/save a.jsonl"], "--max-new-tokens", "2")
        self.assertIn("warning: every answer was cut off", result.stderr)
        self.assertIs(self.saved("a.jsonl")[0][1]["train"], False)
        told = self.ended_at_a_terminal("--max-new-tokens", "2"), self.ended_at_a_terminal("--max-new-tokens", "1000", "--temperature", "1")
        self.assertIn("(cut off after 2 tokens: --max-new-tokens)", told[0])
        self.assertIn("(cut off: the model's window is full; /reset begins a new conversation)", told[1])

    def test_mistakes_in_a_script_end_it(self):
        for code, says, *lines in ((2, "/help lists them", "/sing"), (2, "/adapter DIR|none: say which", "/adapter"),
                                   (3, "no adapter there", "/adapter nowhere"), (2, "no conversation yet", "/save a.jsonl"),
                                   (3, "/none/a.jsonl: cannot open", "Hi", "/save /none/a.jsonl")):
            result = self.chat([*lines, "Hi"], code=code)
            self.assertIn(says, result.stderr.splitlines()[-1])
        self.assertEqual(self.chat(["/exit", "/sing"]).stdout, "")
        self.fails(3, "chat", "--model", "nowhere", says=["nowhere"])
        self.fails(2, "chat", "--model", TINY, "--prompt", "Hi", says=["generate"])

    def test_a_conversation_that_is_too_long(self):
        long = "word " * 20000
        result = self.chat(["Hi", long], code=8)
        for text in ("too long", "window", "/save FILE", "/reset"):
            self.assertIn(text, result.stderr.splitlines()[-1])
        result = subprocess.run([HONE, "chat", "--model", str(TINY), *FEW], input=b"\xff\xfe\n", capture_output=True, check=False)
        self.assertEqual((result.returncode, b"UTF-8" in result.stderr), (2, True), result.stderr)

    def test_a_request_to_stop_ends_a_script(self):
        process = subprocess.Popen([HONE, "chat", "--model", str(TINY), "--max-new-tokens", "100000", "--temperature", "1"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"Hi\n" * 2000)
        process.stdin.flush()
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 10, err)
        self.assertIn(b"stopping after this token", err)

    def test_at_a_terminal(self):
        t = Terminal(self.dir, "chat", "--model", TINY, "--max-new-tokens", "100000", "--temperature", "1.3")
        try:
            self.assertIn("/help lists commands", t.read("> "))
            t.type("/help\n")
            self.assertIn("/adapter DIR|none", t.read("> "))
            t.type("/sing\n")
            self.assertIn("there is no command '/sing'", t.read("> "))
            t.type("/adapter nowhere\n")
            self.assertIn("no adapter there", t.read("> "))             # and the model is still there
            for _ in range(20):                                         # an answer may have ended by itself
                t.type("/reset\n")
                t.read("(a new conversation)\n> ")
                t.type("Hi\n")
                t.read("Hi\n")
                time.sleep(0.01)
                t.type("\x03")
                if "(stopped)" in t.read("> "):
                    break
            else:
                self.fail("no answer was stopped")
            t.type("half a mess\x03")
            t.read("(/exit or Ctrl-D ends)\n> ")
            t.type("/save a.jsonl\n")
            self.assertIn("added to a.jsonl", t.read("> "))
            t.type("\x04")
            self.assertEqual(t.process.wait(timeout=60), 0)
        finally:
            t.close()
        self.assertIs(self.saved("a.jsonl")[0][-1]["train"], False)

    def test_lines_are_broken_between_words(self):
        t = Terminal(self.dir, "chat", "--model", TINY, *FEW)
        try:
            fcntl.ioctl(t.mine, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 40, 0, 0))
            t.read("> ")
            t.type("/help\n")
            lines = t.read("> ").split("\n")
            self.assertGreater(len(lines), 10)
            self.assertLessEqual(max(map(len, lines)), 40, lines)
        finally:
            t.close()

    def test_a_terminal_can_be_left_by_a_command(self):
        t = Terminal(self.dir, "chat", "--model", TINY, *FEW)
        try:
            t.read("> ")
            t.type("Hi\n")
            t.read("> ")
            t.type("/exit\n")
            self.assertEqual(t.process.wait(timeout=60), 0)
        finally:
            t.close()


main(Chat, Chat)
