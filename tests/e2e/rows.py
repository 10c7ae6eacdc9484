#!/usr/bin/env python3
"""Data sets as users bring them, through `hone inspect data` and `hone eval`.

    rows.py HONE ASSETS DATA

Files of every form and packing, rows of every kind, 1,000 broken rows of 40 kinds of which each is reported with its place and
cause, and what the checks find.
"""
import gzip
import json
import os
import pty
import random
import re
import shutil
import subprocess

from case import ASSETS, CHAT, HONE, TINY, Case, main, read_terminal, run

USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."}
KINDS = {
    "messages": CHAT,
    "prompt and completion": {"prompt": "Hi", "completion": " there"},
    "text": {"text": "Hi there"},
    "Alpaca": {"instruction": "Say hi", "input": None, "output": "Hi", "system": "Be kind", "history": [["a", "b"]]},
    "ShareGPT": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}], "system": "x"},
    "preference": {"prompt": [USER], "chosen": [ANSWER], "rejected": [{"role": "assistant", "content": "No."}]},
}


def dump(row):
    return json.dumps(row, ensure_ascii=False)


def broken():
    """Two tables, of broken JSON and of JSON that is not a usable row: name -> (a row's bytes from random numbers, the message)"""
    def chat(*messages):
        return dump({"messages": list(messages)}).encode()

    def word(r):
        return "".join(r.choice("abcdefgh é") for _ in range(r.randint(1, 40)))

    def user(r):
        return {"role": "user", "content": word(r)}

    def pair(r):
        return [user(r), {"role": "assistant", "content": word(r)}]

    bad_json = {
        "not JSON": (lambda r: word(r).strip().encode() or b"x", "broken JSON"),
        "cut in the middle": (lambda r: chat(*pair(r))[:r.randint(1, 60)], "broken JSON"),
        "more after it": (lambda r: chat(*pair(r)) + b" {}", "end of file expected"),
        "invalid UTF-8": (lambda r: chat(*pair(r)).replace(b"assistant", b"assis\xfftant"), "unable to decode byte 0xff"),
        "overlong UTF-8": (lambda r: chat(*pair(r)).replace(b"assistant", b"assis\xc0\xaf"), "unable to decode byte 0xc0"),
        "lone surrogate": (lambda r: chat(*pair(r)).replace(b"assistant", rb"\ud800"), "invalid Unicode"),
        "NUL": (lambda r: chat(*pair(r)).replace(b"assistant", b"assis\0tant"), "broken JSON"),
        "control character": (lambda r: chat(*pair(r)).replace(b"assistant", b"assis\ttant"), "control character"),
        "duplicate key": (lambda r: b'{"messages": [{"role": "user", "role": "user", "content": "a"}]}', "duplicate object key"),
        "nested too deep": (lambda r: b'{"messages": ' + b"[" * r.randint(3000, 9000), "maximum parsing depth"),
        "huge integer": (lambda r: b'{"id": 1%s, "text": "a"}' % (b"0" * r.randint(310, 600)), "too big integer"),
        "huge number": (lambda r: b'{"id": 1e%d, "text": "a"}' % r.randint(309, 99999), "real number overflow"),
        "single quotes": (lambda r: chat(*pair(r)).replace(b'"', b"'"), "broken JSON"),
        "trailing comma": (lambda r: chat(*pair(r)).replace(b"}]", b"},]"), "broken JSON"),
        "NaN": (lambda r: b'{"text": "a", "score": NaN}', "broken JSON"),
    }
    bad_rows = {
        "a list": (lambda r: b"[1, 2]", "the row is a list, not a JSON object"),
        "a string": (lambda r: dump(word(r)).encode(), "the row is a string, not a JSON object"),
        "wrong type": (lambda r: b'{"messages": %d}' % r.randint(0, 99), '"messages" is not a list of messages but a number'),
        "empty messages": (lambda r: b'{"messages": []}', '"messages" is empty'),
        "a message that is none": (lambda r: chat(word(r), ANSWER), "message 1 is a string, not an object"),
        "unknown role": (lambda r: chat(user(r), {"role": "robot", "content": "a"}), 'message 2 has the role "robot"'),
        "no role": (lambda r: chat({"content": word(r)}, ANSWER), 'message 1 has no "role"'),
        "role of a wrong type": (lambda r: chat({"role": 7, "content": word(r)}, ANSWER), '"role" of message 1 is a number'),
        "missing content": (lambda r: chat(user(r), {"role": "assistant"}), 'message 2 (assistant) has no "content"'),
        "null content": (lambda r: chat(user(r), {"role": "assistant", "content": None}), 'message 2 (assistant) has no'),
        "number as content": (lambda r: chat({"role": "user", "content": r.randint(0, 9)}, ANSWER),
                              '"content" of message 1 (user) is a number'),
        "an image": (lambda r: chat({"role": "user", "content": [{"type": "image", "url": "x"}]}, ANSWER),
                     "part 1 of message 1 is not"),
        "no assistant": (lambda r: chat(user(r)), "no message of the assistant: no token to train"),
        "two kinds": (lambda r: dump({"text": word(r), **CHAT}).encode(), 'messages by "messages", and text by "text"'),
        "unknown keys": (lambda r: dump({"question": word(r), "answer": word(r)}).encode(), 'its keys are "question", "answer"'),
        "half a kind": (lambda r: dump({"prompt": word(r), "response": word(r)}).encode(), 'it has "prompt" but no "completion"'),
        "no keys": (lambda r: b"{}", "its keys are none"),
        "empty text": (lambda r: b'{"text": ""}', '"text" is empty'),
        "text of a wrong type": (lambda r: b'{"text": ["a"]}', '"text" is a list, not a string'),
        "string and list": (lambda r: dump({"prompt": word(r), "completion": [ANSWER]}).encode(),
                            '"prompt" is a string and "completion" is a list'),
        "unknown speaker": (lambda r: dump({"conversations": [{"from": "alien", "value": word(r)}]}).encode(),
                            'message 1 is from "alien"'),
        "a call that is none": (lambda r: dump({"conversations": [{"from": "function_call", "value": word(r)}]}).encode(),
                                "message 1 is a function_call"),
        "an answer marked as bad": (lambda r: dump({"prompt": word(r), "completion": "x", "label": False}).encode(), "as KTO's rows do"),
        "Alpaca without an answer": (lambda r: dump({"instruction": word(r), "output": 5}).encode(), '"output" is a number'),
        "the same twice": (lambda r: dump({"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]}).encode(), "are the same"),
        "tools of a wrong type": (lambda r: dump({"tools": {"a": 1}, **CHAT}).encode(), '"tools" is an object, not a list'),
    }
    return bad_json, bad_rows


class Rows(Case):
    def inspect(self, data, *more, model=TINY):
        result = run("inspect", "data", "--model", model, "--data", data, "--json", *more)
        self.assertIn(result.returncode, (0, 9), result.stderr)
        return json.loads(result.stdout)

    def test_a_thousand_broken_rows(self):
        bad_json, bad_rows = broken()
        kinds, r = {**bad_json, **bad_rows}, random.Random(6)
        self.assertGreaterEqual(len(kinds), 20)
        names = [name for name in kinds for _ in range(25)]
        self.assertGreaterEqual(len(names), 1000)
        r.shuffle(names)
        lines, expected = [], []
        for name in names:
            while r.random() < 0.3:
                lines.append(r.choice([b"", b" \t", dump(CHAT).encode(), dump({"text": "ok"}).encode()]))
            row = b""
            while not row.strip() or b"\n" in row:
                row = kinds[name][0](r)
            lines.append(row)
            expected.append((len(lines), name))
        path = self.dir / "broken.jsonl"
        path.write_bytes(b"\n".join(lines))
        report = self.inspect(path)
        self.assertEqual(report["bad_rows"], len(expected))
        self.assertEqual([b["line"] for b in report["bad"]], [line for line, _ in expected])
        for bad, (line, name) in zip(report["bad"], expected):
            says = kinds[name][1]
            self.assertEqual(bad["file"], str(path))
            self.assertIn(says, bad["error"], f"{name}: {lines[line - 1][:200]}")
            if name in bad_json:
                column = int(re.match(r"column (\d+): ", bad["error"])[1])
                self.assertLessEqual(column, len(lines[line - 1]) + 1)
            self.assertTrue(bad["error"].isprintable(), bad["error"])
        line, name = expected[0]
        self.fails(9, "eval", "--model", TINY, "--data", path, says=[f"broken.jsonl:{line}: ", kinds[name][1]])

    def test_columns_are_those_of_the_file(self):
        path = self.write("rows.jsonl", '  {"text": "é", 7}')
        self.assertRegex(self.inspect(path)["bad"][0]["error"], r"^column 17: ")
        path.write_text('[{"text": "a"},\n {"text":\n  nul}]')
        bad = self.inspect(path)["bad"][0]
        self.assertEqual(bad["line"], 2)
        self.assertRegex(bad["error"], r"^line 2 of the row, column 5: ")

    def test_every_kind(self):
        path = self.write("rows.jsonl", *KINDS.values())
        report = self.inspect(path, "--rows", 10)
        self.assertEqual(report["kinds"], {name: 1 for name in KINDS})
        self.assertEqual([row["kind"] for row in report["shown"]], list(KINDS))
        self.assertNotIn("stops", report)
        for row in report["shown"]:
            self.assertEqual(row["trained_tokens"], sum(t["trained"] for t in row["tokens"]))
            self.assertGreater(row["trained_tokens"], 0)
            self.assertEqual(row["found"], ["trained without the chat template"] if row["kind"] == "text" else [])
        trained = ["".join(t["text"] for t in row["tokens"] if t["trained"]) for row in report["shown"]]
        self.assertEqual(trained, ["Hello there.<|im_end|>", " there<|im_end|>", "i there<|im_end|>", "b<|im_end|>Hi<|im_end|>",
                                   "Hello<|im_end|>", "Hello there.<|im_end|>"])
        self.assertIn("chosen answer", self.ok("inspect", "data", "--model", TINY, "--data", path))
        out = json.loads(self.ok("eval", "--model", TINY, "--data", path, "--json"))
        self.assertEqual((out["rows"], out["trained_tokens"]), (6, report["trained_tokens"]))

    def test_answers_of_the_prompt_are_not_trained(self):
        turns = [USER, {"role": "assistant", "content": "One."}, USER, {"role": "assistant", "content": "Two."}]
        path = self.write("rows.jsonl", {"prompt": turns[:3], "completion": turns[3:]}, {"messages": turns},
                          {"chosen": turns, "rejected": turns[:3] + [ANSWER]})
        trained = ["".join(t["text"] for t in row["tokens"] if t["trained"]) for row in self.inspect(path)["shown"]]
        self.assertEqual(trained, ["Two.<|im_end|>", "One.<|im_end|>Two.<|im_end|>", "Two.<|im_end|>"])

    def test_calls_of_functions(self):
        call = json.dumps({"name": "add", "arguments": {"a": 1}})
        rows = [{"conversations": [{"from": "human", "value": "1+1"}, {"from": "function_call", "value": call},
                                   {"from": "observation", "value": "2"}, {"from": "gpt", "value": "Two"}],
                 "tools": json.dumps([{"type": "function", "function": {"name": "add"}}])}]
        data = self.write("rows.jsonl", *rows)
        self.assertIn("does not print the tool calls of message 2", self.inspect(data)["bad"][0]["error"])
        model = self.dir / "model"
        shutil.copytree(TINY, model)
        shutil.copy(ASSETS / "templates/Qwen-Qwen2.5-7B-Instruct.jinja", model / "chat_template.jinja")
        report = self.inspect(data, model=model)
        self.assertEqual(report["bad_rows"], 0)
        text = "".join(t["text"] for t in report["shown"][0]["tokens"])
        self.assertIn('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>', text)
        self.assertIn("<tool_response>\n2\n</tool_response><|im_end|>", text)
        self.assertIn("Two<|im_end|>", text)

    def test_nulls_are_absent(self):
        nulls = {"text": None, "tools": None, "prompt": None, "chosen": None}
        path = self.write("rows.jsonl", {"messages": [{**USER, "tool_calls": None, "name": None}, ANSWER], **nulls}, CHAT)
        report = self.inspect(path)
        self.assertEqual(report["kinds"], {"messages": 2})
        self.assertEqual(report["shown"][0]["tokens"], report["shown"][1]["tokens"])

    def test_every_form_of_file(self):
        rows = [{"messages": [{"role": "user", "content": f"Frage {i} für\n{'x' * i}"}, ANSWER]} for i in range(200)]
        lines = [json.dumps(r, ensure_ascii=i % 2 == 0) for i, r in enumerate(rows)]
        plain = "\n".join(lines).encode()
        forms = {"a.jsonl": plain, "b.jsonl": b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n\r\n") + b"\r\n",
                 "c.jsonl.gz": gzip.compress(plain), "d.json": json.dumps(rows, indent=2).encode(),
                 "e.json": b"[" + b",".join(s.encode() for s in lines) + b"]",
                 "f.json.gz": gzip.compress(plain[:500]) + gzip.compress(plain[500:])}
        (self.dir / "set").mkdir()
        for name, content in {**forms, "set/train.jsonl.gz": gzip.compress(plain)}.items():
            (self.dir / name).write_bytes(content)
            report = self.inspect(self.dir / ("set" if "/" in name else name))
            want = want if name != "a.jsonl" else report
            self.assertEqual(report["rows"], 200)
            for key in ("tokens", "trained_tokens", "checks"):
                self.assertEqual(str(report[key]), str(want[key]), name)
            self.assertEqual([r["tokens"] for r in report["shown"]], [r["tokens"] for r in want["shown"]])
        paths = f"{self.dir}/set:0.5,{self.dir}/d.json:2,{self.dir}/e.json"
        report = self.inspect(paths)
        self.assertEqual([f["weight"] for f in report["files"]], [0.5, 2, 1])
        self.assertEqual(report["rows"], 600)
        self.assertEqual(report["checks"][5]["rows"], 400)
        (self.dir / "g.jsonl.gz").write_bytes(gzip.compress(plain)[:-9])
        self.fails(4, "inspect", "data", "--model", TINY, "--data", self.dir / "g.jsonl.gz", says=["g.jsonl.gz", "breaks off"])
        (self.dir / "h.parquet").write_bytes(b"PAR1" + bytes(100))
        self.fails(4, "inspect", "data", "--model", TINY, "--data", self.dir / "h.parquet", says=["h.parquet: ", "Parquet", "cut off"])
        self.fails(3, "inspect", "data", "--model", TINY, "--data", self.dir / "none", says=["no such file"])

    def test_strings_go_through_the_template_as_chat_asks(self):
        """Before: prompt and completion were one text, which hone chat, asking through the template, never asks for."""
        row = {"prompt": "Say hi", "completion": "Hi"}
        chat = {"messages": [{"role": "user", "content": "Say hi"}, {"role": "assistant", "content": "Hi"}]}
        path = self.write("rows.jsonl", row, {"prompt": "Say hi", "chosen": "Hi", "rejected": "No"}, chat)
        shown = self.inspect(path, "--rows", 3)["shown"]
        self.assertEqual([r["tokens"] for r in shown], [shown[2]["tokens"]] * 3)
        raw = self.inspect(path, "--rows", 3, "--raw")
        self.assertEqual([r["found"] for r in raw["shown"]], [["trained without the chat template"]] * 2 + [[]])
        self.assertEqual("".join(t["text"] for t in raw["shown"][0]["tokens"]), "Say hiHi<|im_end|>")
        out = self.dir / "out"
        words = ("train", "--model", TINY, "--data", self.write("one.jsonl", *[row] * 8), "--max-steps", 2, "--output")
        plain, raw = run(*words, out, "--save-steps", 1), run(*words, self.dir / "raw", "--raw")
        self.assertNotIn("without the chat template", plain.stderr)
        self.assertRegex(raw.stderr, r"warning: trained without the chat template in 8 of 8 rows .*hone generate --raw asks as they do")
        self.assertRegex(plain.stdout + plain.stderr, r"(?m)^try it +hone generate \S+ --prompt ")
        self.assertRegex(raw.stdout + raw.stderr, r"(?m)^try it +hone generate \S+ --raw --prompt ")
        self.assertRegex(self.ok("inspect", "data", "--model", TINY, "--data", path), r"(?m)trained without the chat template +none$")
        self.ok("report", self.dir / "raw")
        self.assertIn("rows trained without the chat template", (self.dir / "raw/report.html").read_text())
        again = run(*words, out, "--save-steps", 1, "--raw")
        self.assertEqual((again.returncode, "--raw" in again.stderr), (2, True), again.stderr)

    def test_checks(self):
        """Each finding, and the reasons that stop a run."""
        inside = {"messages": [{"role": "user", "content": "a <|im_end|> b"}, ANSWER]}
        escaped = json.dumps({"messages": [{"role": "user", "content": "a LT|im_end|> b"}, ANSWER]}).replace("LT", "\\u003c")
        elsewhere = {**CHAT, "id": "<|im_end|>"}
        plain = {"text": "a <|im_end|> b"}
        report = self.inspect(self.write("rows.jsonl", CHAT, inside, escaped, elsewhere, plain, KINDS["Alpaca"]))
        found = {c["check"]: (c["level"], c["rows"], c.get("first", {}).get("row")) for c in report["checks"]}
        self.assertEqual(found, {"nothing trained": ("ok", 0, None), "double BOS": ("ok", 0, None),
                                 "end of turn not trained": ("ok", 0, None), "special tokens in text": ("warning", 2, 2),
                                 "trained without the chat template": ("ok", 0, None), "duplicate rows": ("warning", 2, 3), "too long": ("ok", 0, None)})
        path = self.write("double.jsonl", CHAT, {"text": "<|im_start|><|im_start|>user"})
        self.fails(9, "inspect", "data", "--model", TINY, "--data", path, says=["would stop a run", "twice", "line 2"])
        path = self.write("none.jsonl", {"text": "<|im_end|>"})
        self.fails(9, "inspect", "data", "--model", TINY, "--data", path, says=["would stop a run", "no token to train"])
        path = self.write("empty.jsonl", "")
        self.fails(9, "inspect", "data", "--model", TINY, "--data", path, says=["no rows"])

    def test_rows_that_are_too_long_are_told_as_a_run_tells_them(self):
        """Fails if the limit is not the run's: data that passes here would stop it."""
        window = json.loads((TINY / "config.json").read_text())["max_position_embeddings"]
        path = self.write("long.jsonl", CHAT, {"text": "x y, " * window}, {"text": "a b c d e f g h"})
        line = ("inspect", "data", "--model", TINY, "--data", path)
        self.fails(9, *line, says=["would stop a run", f"1 of 3 rows has more than {window} tokens", "line 2", "--excess-length"])
        self.fails(9, "eval", *line[2:], says=["long.jsonl:2", f"the limit is {window}"])
        self.fails(9, *line, "--max-length", 6, says=["3 of 3 rows have more than 6 tokens"])
        self.fails(2, *line, "--max-length", window + 1, says=["above the model's window"])
        for what in ("truncate", "split", "drop"):
            self.assertIn("too long                  1 row, the first is row 2 (long.jsonl:2)", self.ok(*line, "--excess-length", what))
        bare = self.dir / "bare"
        shutil.copytree(TINY, bare, ignore=lambda *_: ["config.json"])
        self.assertNotIn("too long", self.ok("inspect", "data", "--model", bare, "--data", path))

    def test_marks_and_rows(self):
        path = self.write("rows.jsonl", CHAT, {"text": "tab\there \x1b[31m \u202e"}, {"text": "日本語𠀀"})
        out = self.ok("inspect", "data", "--model", TINY, "--data", path)
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\u202e", out)
        self.assertIn("⟦H│el│lo│ th│", out)
        self.assertIn("<|im_end|>⟧", out)
        self.assertIn("row 3  rows.jsonl:3", out)
        self.assertIn("\\x", out)
        one = self.ok("inspect", "data", "--model", TINY, "--data", path, "--row", 2)
        self.assertNotIn("row 1", one)
        self.assertRegex(one, r"\n +0 +\d+ +t\n")
        self.assertRegex(one, r"\n +\d+ +2  yes      <\|im_end\|>\n")
        self.assertEqual(self.inspect(path, "--row", 2)["shown"][0]["line"], 2)
        self.assertEqual(len(self.inspect(path, "--rows", 0)["shown"]), 0)
        self.fails(2, "inspect", "data", "--model", TINY, "--data", path, "--row", 4, says=["the data has 3 rows"])
        self.fails(2, "inspect", "data", "--model", TINY, says=["--data"])

    def test_a_report_lists_so_many_tokens_and_counts_the_rest(self):
        """As JSON a token takes almost a kilobyte: a row of 30 MB took more memory than the machine has."""
        path = self.write("rows.jsonl", CHAT, {"text": "x y, " * 60_000}, CHAT)
        report = self.inspect(path)
        listed, counts = [len(row["tokens"]) for row in report["shown"]], [row["count"] for row in report["shown"]]
        self.assertEqual(sum(listed), 100_000)
        self.assertEqual(listed[0], counts[0])
        self.assertGreater(counts[1], 110_000)
        self.assertEqual((listed[2], counts[2]), (0, counts[0]))
        self.assertEqual(report["tokens"], sum(counts))
        out = self.ok("inspect", "data", "--model", TINY, "--data", path, "--excess-length", "drop")
        self.assertIn(f"... and {counts[1] - 600} tokens more", out)
        self.assertIn(f"... and {counts[2]} tokens more", out)

    def test_colour_on_a_terminal(self):
        path = self.write("rows.jsonl", CHAT)

        def on_terminal(**more):
            mine, its = pty.openpty()
            process = subprocess.Popen([HONE, "inspect", "data", "--model", TINY, "--data", path], stdout=its,
                                       env={**os.environ, "TERM": "xterm-256color", **more})
            os.close(its)
            out = read_terminal(mine)
            self.assertEqual(process.wait(), 0)
            return out.decode()
        colour = on_terminal()
        self.assertIn("\x1b[0;38;5;255;48;5;28mel", colour)
        self.assertIn("\x1b[0;38;5;250;48;5;239muser", colour)
        self.assertNotIn("⟦", colour)
        self.assertTrue(colour.rstrip().endswith("\x1b[0m"))
        for plain in (on_terminal(NO_COLOR="1"), on_terminal(TERM="dumb")):
            self.assertNotIn("\x1b", plain)
            self.assertIn("⟦", plain)

    def test_train_on_inputs(self):
        report = self.inspect(self.write("rows.jsonl", CHAT), "--train-on-inputs")
        self.assertEqual(report["trained_tokens"], report["tokens"] - 1)

    def test_page(self):
        user = {"role": "user", "content": "<script>alert(1)</script> & \"x\""}
        path = self.write("rows.jsonl", {"messages": [user, ANSWER]}, "{bad")
        page = self.dir / "page.html"
        shown = run("inspect", "data", "--model", TINY, "--data", path, "--html", page).stdout
        self.assertIn(f"page: {page}\n", shown)
        text = page.read_text()
        self.assertNotIn("<script", text)
        self.assertNotRegex(text, "https?:")
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertIn("cannot be used", text)
        self.assertRegex(text, r'class="t" title="token \d+, id \d+, trained">lo<')
        self.assertEqual(text.count("<section"), 1)


main(Rows, Rows)
