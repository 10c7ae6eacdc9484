#!/usr/bin/env python3
"""Text of a stranger, on every way that it can take to a terminal or a page.

Each test plants a text in one kind of place, a file's name, a tensor's, a key, a message of a template, and gives it to the commands
that could show it: once to a pipe and once to a terminal. Nothing of it may control a terminal, change the direction of text, hide
in it or begin a line of its own, on either, nor in a page. The ways are printed at the end. That no way is missing is a matter of
the source: src/cli/view/out.h is the only one, and tests/layers.py refuses another (rule "out").
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import unicodedata

from case import CHAT, HONE, TINY, main, read_terminal
from hostile import CORPUS, gguf, gguf_text
from hub import COMMIT, NAME, HubCase

PROGRAM = os.path.abspath(HONE).encode()

WORD = "PLANTED"                # shows that a text arrived
MARKS = "\x1b]0;t\x07\x1b[5n\r\x7f\u0085\u009b31m\u009d\u061c\u200e\u200f\u202e\u202d\u2066\u2067\u2069\u2028\u2029\u200b\u2060\ufeff\u00ad\U000e0041\U000e007f"
EVIL = f"{WORD}{MARKS}\nFORGED"
NAMED = EVIL.replace("\r", "")  # in names of files and keys of YAML
RAW = NAMED.encode() + b"\x9b31m\x90\xff"
OWN = re.compile("\x1b\\[(?:[0-9;]*m|\\?7[lh]|[KJA])")
FINE = {"\u200c", "\u200d"}     # in pages and answers: what joins letters

ways, shown = [], set()


def wrong(text, page=False):
    """What of a text controls, reorders, hides or forges; the colours and the progress are hone's own."""
    found = [c for c in OWN.sub("", text) if c not in "\n\t" and (unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Cn")) and
             not (page and c in FINE)]
    return sorted({f"U+{ord(c):04X}" for c in found}) + ["a line of its own"] * bool(not page and re.search("^FORGED", text, re.M))


class Strangers(HubCase):
    @classmethod
    def tearDownClass(cls):
        print(f"\n{len(set(ways))} ways of a stranger's text, x: it was seen there, made harmless")
        for place, command in dict.fromkeys(ways):
            print(f"  [{'x' if (place, command) in shown else ' '}] {place:<44} {command}")

    def copy(self, name="model"):
        return pathlib.Path(shutil.copytree(TINY, self.dir / name))

    def terminal(self, command, env):
        mine, its = pty.openpty()
        fcntl.ioctl(its, 0x5414, struct.pack("HHHH", 40, 300, 0, 0))        # TIOCSWINSZ
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=its, stderr=its, cwd=self.dir, env={**env, "TERM": "xterm", "LANG": "C.UTF-8"})
        os.close(its)
        seen = read_terminal(mine)
        process.wait(60)
        return seen.replace(b"\r\n", b"\n").replace(b"\r", b"")             # the terminal's own, and the progress's

    def goes(self, place, *command, arrives=True, **env):
        """A way: the command with the planted text, to a pipe and to a terminal. Returns what it printed to the pipe."""
        words = [c if isinstance(c, bytes) else str(c).encode() for c in command]
        name = " ".join(str(c) for c in command if isinstance(c, str) and not c.startswith("/") and WORD not in c)
        ways.append((place, name))
        env = {**os.environ, **env}
        pipe = subprocess.run([PROGRAM, *words], capture_output=True, timeout=60, cwd=self.dir, stdin=subprocess.DEVNULL, env=env)
        self.assertGreaterEqual(pipe.returncode, 0, (place, pipe.stderr))
        out = pipe.stdout + pipe.stderr
        for kind, said in (("pipe", out), ("terminal", self.terminal([PROGRAM, *words], env))):
            with self.subTest(place=place, command=name, to=kind):
                self.assertEqual(wrong(said.decode(errors="surrogateescape")), [], said)
        if WORD.encode() in out:
            shown.add((place, name))
        if arrives:
            self.assertIn(WORD.encode(), out, (place, name))
        return pipe

    def page(self, place, path, arrives=True):
        text = path.read_bytes().decode(errors="surrogateescape")
        ways.append((place, "the page"))
        if WORD in text:
            shown.add((place, "the page"))
        self.assertEqual(wrong(text, page=True), [], place)
        self.assertEqual(arrives, WORD in text, place)
        self.assertNotRegex(text, "(?i)<script|<img|<svg[^>]*onload|javascript:")
        self.assertEqual(text.count("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                                    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"), 1, place)
        self.assertLess(text.index("Content-Security-Policy"), text.index("<title>"))
        return text

    def change(self, path, **keys):
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))

    # --- names -------------------------------------------------------------------------------------------------------------------

    def test_names_of_files(self):
        rows = self.write("rows.jsonl", *[CHAT] * 4)
        for name in (NAMED.encode(), RAW):
            at = os.fsencode(self.dir) + b"/" + name.replace(b"/", b"")
            os.mkdir(at)
            shutil.copy(rows, at + b"/rows.jsonl")
            (bad := open(at + b"/bad.jsonl", "wb")).write(b'{"messages": 7}\n' + rows.read_bytes())
            bad.close()
            shutil.copytree(os.fsencode(TINY), at + b"/model")
            model = "--model", TINY
            self.goes("the folder of data", "inspect", "data", *model, "--data", at + b"/rows.jsonl")
            self.goes("the folder of data", "inspect", "data", *model, "--data", at + b"/rows.jsonl", "--json")
            self.goes("the folder of bad data", "inspect", "data", *model, "--data", at + b"/bad.jsonl")
            self.goes("the folder of bad data", "eval", *model, "--data", at + b"/bad.jsonl", "--bad-rows", "skip")
            self.goes("the folder of data", "train", *model, "--data", at + b"/rows.jsonl", "--dry-run", "--output", "o")
            self.goes("the folder of data", "init", *model, "--data", at + b"/rows.jsonl", "--dry-run", arrives=name == NAMED.encode())
            self.goes("the folder of data", "plan", *model, "--data", at + b"/rows.jsonl")
            self.goes("no such file", "eval", *model, "--data", at + b"/none.jsonl")
            self.goes("the folder of a model", "inspect", "model", "--model", at + b"/model", arrives=False)
            self.goes("the folder of a model", "plan", "--model", at + b"/model", "--json", arrives=False)
            self.goes("the folder of a model", "quantize", "--model", at + b"/model", "--output", at + b"/m.gguf", "--dry-run")
            self.goes("the output", "train", *model, "--data", rows, "--max-steps", "1", "--output", at + b"/out")
            self.goes("the output", "watch", at + b"/out")
            self.goes("the output", "watch", at + b"/out", "--json")
            self.goes("the output", "report", at + b"/out")
            self.goes("the folder of an adapter", "inspect", "adapter", at + b"/out")
            self.goes("the folder of a checkpoint", "inspect", "checkpoint", at + b"/out")
            self.goes("the folder of an adapter", "export", *model, "--adapter", at + b"/out", "--output", at + b"/a.gguf")
            self.goes("the page of data", "inspect", "data", *model, "--data", rows, "--html", at + b"/page.html")
            self.goes("no such folder", "watch", at + b"/none")
            self.goes("no such folder", "inspect", "adapter", at + b"/none")
            for file, place in ((b"/out/report.html", "the output"), (b"/page.html", "the page of data")):
                self.page(place, pathlib.Path(os.fsdecode(at + file)), arrives=file == b"/out/report.html")

    def test_words_of_the_command_line(self):
        for word in (EVIL.encode(), RAW):
            self.goes("a command", word, arrives=False)
            self.goes("a subject", "inspect", word)
            self.goes("an option", "train", b"--" + word, arrives=False)
            self.goes("a value", "train", "--learning-rate", word)
            self.goes("an argument", "plan", word, arrives=False)
            self.goes("a shell", "completion", word)
            self.goes("a model's name", "pull", word, arrives=False)
            self.goes("a model's name", "plan", "--model", word)
            self.goes("a prompt", "generate", "--model", TINY, "--prompt", word, "--max-new-tokens", "2", "--json", arrives=False)

    def test_every_character_that_unicode_calls_a_control_or_a_format(self):
        """Except the signs of Arabic, Syriac and Kaithi that have a shape."""
        shapes = {*range(0x600, 0x606), 0x6dd, 0x70f, 0x890, 0x891, 0x8e2, 0x110bd, 0x110cd}
        every = [c for c in range(1, 0x110000) if c not in shapes and unicodedata.category(chr(c)) in ("Cc", "Cf", "Zl", "Zp")]
        self.assertGreater(len(every), 200)
        for i in range(0, len(every), 60):
            said = self.goes("every hidden character", "watch", "/none/" + "".join(map(chr, every[i:i + 60])).replace("\n", "") + WORD)
            self.assertEqual(said.returncode, 3)

    def test_the_environment(self):
        for name in ("HONE_CUDA_LIBRARY", "HONE_OPENCL_LIBRARY", "HONE_NVRTC_LIBRARY", "HF_HOME", "HF_ENDPOINT", "HONE_CACHE", "HONE_GUARD"):
            for command in (("devices",), ("plan", "--model", NAME), ("pull", NAME)):
                self.goes(name, *command, arrives=False, **{name: f"/tmp/{NAMED}"})

    # --- a model -----------------------------------------------------------------------------------------------------------------

    def model_commands(self, place, model, arrives=True):
        rows = self.write("rows.jsonl", CHAT)
        self.goes(place, "inspect", "model", "--model", model, arrives=arrives)
        self.goes(place, "inspect", "model", "--model", model, "--json", arrives=arrives)
        self.goes(place, "plan", "--model", model, arrives=False)
        self.goes(place, "generate", "--model", model, "--prompt", "Hi", "--max-new-tokens", "1", arrives=False)
        self.goes(place, "inspect", "data", "--model", model, "--data", rows, arrives=False)

    def test_values_of_a_model(self):
        for key, arrives in (("model_type", True), ("hidden_act", True), ("dtype", False), ("rope_parameters", False), ("architectures", False),
                             ("quantization_config", False)):
            model = self.copy(key)
            value = {"rope_parameters": {"rope_type": EVIL, EVIL: 1}, "architectures": [EVIL], "quantization_config": {"quant_method": EVIL}}.get(key, EVIL)
            self.change(model / "config.json", **{key: value})
            self.model_commands(f"config.json: {key}", model, arrives)

    def test_names_of_tensors(self):
        for place, keys in (("a tensor's name", lambda name, t: (name + EVIL, t)), ("a tensor's type", lambda name, t: (name, t | {"dtype": EVIL}))):
            model = self.copy(place.replace(" ", "-"))
            content = (model / "model.safetensors").read_bytes()
            begin = 8 + int.from_bytes(content[:8], "little")
            header = json.loads(content[8:begin])
            header = dict(keys(k, v) if k != "__metadata__" else (EVIL, {}) for k, v in header.items() if k != "__metadata__")
            text = json.dumps(header).encode()
            (model / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])
            self.model_commands(place, model, arrives=False)
        model = self.copy("index")
        (model / "model.safetensors").rename(model / "part.safetensors")
        (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part.safetensors", EVIL: EVIL}}))
        self.model_commands("the index of shards", model)

    def test_tokens(self):
        model = self.copy()
        token = WORD + MARKS.replace("\r", "")                           # a template's \r is a newline
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (model / file).write_text((model / file).read_text().replace("<|endoftext|>", json.dumps(token)[1:-1]))
        (model / "chat_template.jinja").write_text((TINY / "chat_template.jinja").read_text() + token)
        rows = self.write("rows.jsonl", CHAT)
        self.goes("a token", "inspect", "data", "--model", model, "--data", rows)
        self.goes("a token", "inspect", "data", "--model", model, "--data", rows, "--row", "1")
        self.goes("a token", "inspect", "data", "--model", model, "--data", rows, "--row", "1", "--json", "--html", self.dir / "t.html")
        self.page("a token", self.dir / "t.html")
        model = self.copy("named")
        self.change(model / "tokenizer_config.json", eos_token=EVIL, tokenizer_class=EVIL)
        self.model_commands("tokenizer_config.json", model, arrives=False)
        model = self.copy("kind")
        self.change(model / "tokenizer.json", model={"type": EVIL}, decoder={"type": EVIL})
        self.goes("the kind of a tokenizer", "inspect", "data", "--model", model, "--data", rows)

    def test_templates(self):
        rows = self.write("rows.jsonl", CHAT)
        text = f'"{EVIL}"'
        for place, template in (("a template's raise_exception", f"{{{{ raise_exception({text}) }}}}"), ("a template's text", f"{EVIL}{{{{ messages }}}}"),
                                ("a template's filter", f"{{{{ messages | {WORD} }}}}{{# {EVIL} #}}"), ("a template's statement", f"{{% {WORD} %}}{EVIL}"),
                                ("a template's attribute", f"{{{{ messages[{text}].x }}}}")):
            model = self.copy(place.replace(" ", "-").replace("'", ""))
            (model / "chat_template.jinja").write_text(template)
            for command in (("inspect", "data", "--data", rows), ("generate", "--prompt", "Hi", "--max-new-tokens", "1"), ("eval", "--data", rows)):
                self.goes(place, *command, "--model", model, arrives=False)
            self.assertTrue(any(way[0] == place for way in shown) or "text" in place or "attribute" in place, place)

    def test_gguf(self):
        def text(key, value):
            return gguf_text(key) + struct.pack("<I", 8) + gguf_text(value)
        for place, pairs in (("GGUF: architecture", [(b"general.architecture", EVIL.encode())]), ("GGUF: not UTF-8", [(b"general.architecture", RAW)]),
                             ("GGUF: key", [(RAW, b"x"), (EVIL.encode(), EVIL.encode())]),
                             ("GGUF: tokenizer", [(b"general.architecture", b"llama"), (b"tokenizer.ggml.model", EVIL.encode())])):
            file = self.dir / "model.gguf"
            file.write_bytes(gguf(len(pairs), 0, b"".join(text(*p) for p in pairs)))
            self.model_commands(place, file, arrives=False)
        tensor = gguf_text(EVIL.encode()) + struct.pack("<IQIQ", 1, 32, 99, 0)
        (self.dir / "model.gguf").write_bytes(gguf(1, 1, text(b"general.architecture", b"llama") + tensor) + bytes(256))
        self.model_commands("GGUF: tensor", self.dir / "model.gguf", arrives=False)

    def test_answers(self):
        """A model says what it likes: harmless on a terminal, and as it is in a pipe (tests/e2e/cli.py)."""
        command = ["generate", "--model", str(TINY), "--prompt", "Hi", "--max-new-tokens", "100", "--temperature", "5", "--seed", "1"]
        ways.append(("a model's answer", "generate"))
        self.assertEqual(wrong(self.terminal([PROGRAM, *command], dict(os.environ)).decode()), [])
        rows = self.write("rows.jsonl", *[CHAT] * 2)
        self.goes("a prompt of a sample", "train", "--model", TINY, "--data", rows, "--max-steps", "1", "--output", "sampled", "--sample-prompt", EVIL,
                  "--eval-steps", "1", "--sample-length", "250")
        self.goes("a prompt of a sample", "report", "sampled", arrives=False)
        self.page("a prompt of a sample", self.dir / "sampled/report.html")

    # --- data --------------------------------------------------------------------------------------------------------------------

    def test_rows(self):
        for place, row in (("a row's key", {EVIL: 1}), ("a row's text", {"messages": [{"role": "user", "content": EVIL}, {"role": "assistant", "content": EVIL}]}),
                           ("a role", {"messages": [{"role": EVIL, "content": "x"}]}), ("a message's key", {"messages": [{EVIL: "user"}]}),
                           ("a row's kind", {"prompt": EVIL, EVIL: EVIL}), ("no JSON", EVIL)):
            rows = self.write("rows.jsonl", CHAT, row)
            page = self.dir / "rows.html"
            for more in ((), ("--row", "2"), ("--json",), ("--html", page)):
                self.goes(place, "inspect", "data", "--model", TINY, "--data", rows, *more, arrives=False)
            if page.exists():
                self.page(place, page, arrives=WORD in page.read_text())
            self.goes(place, "eval", "--model", TINY, "--data", rows, arrives=False)
            self.goes(place, "eval", "--model", TINY, "--data", rows, "--bad-rows", "skip", arrives=False)

    def test_columns(self):
        name = WORD + MARKS.replace("\r", "")
        quoted = '"' + EVIL + '"'
        (self.dir / "rows.csv").write_bytes(f'{quoted},b\nx,y\n'.encode())
        (self.dir / "raw.csv").write_bytes(b"prompt," + RAW.replace(b"\n", b"") + b"\nx,y\n")
        (self.dir / "rows.tsv").write_text(f"{name}\tb\nx\ty\n")
        column = b"\xc2\x9bm\x1b]\xe2\x80\xae"
        (self.dir / "rows.parquet").write_bytes((CORPUS / "parquet/messages-plain").read_bytes().replace(b"messages", column))
        for file in ("rows.csv", "raw.csv", "rows.tsv", "rows.parquet"):
            for command in (("inspect", "data"), ("eval",)):
                self.goes(f"a column of {file}", *command, "--model", TINY, "--data", file, arrives=file in ("rows.csv", "rows.tsv"))
                self.goes(f"a mapping of {file}", *command, "--model", TINY, "--data", file, "--column-mapping", f"prompt={NAMED},completion=b", arrives=False)

    # --- adapters, checkpoints, runs ------------------------------------------------------------------------------------------------

    def trained(self):
        rows = self.write("rows.jsonl", *[CHAT] * 4)
        self.ok("train", "--model", TINY, "--data", rows, "--output", self.dir / "out", "--max-steps", 2, "--save-steps", 1, "--val-set-size", 1,
                "--on-finish", "true")
        return self.dir / "out"

    def test_adapters(self):
        out = self.trained()
        for key, value in (("base_model_name_or_path", EVIL), ("target_modules", [EVIL]), ("rank_pattern", {EVIL: 2}), ("peft_type", EVIL),
                           ("modules_to_save", [EVIL]), ("init_lora_weights", EVIL), ("task_type", EVIL), (EVIL, EVIL)):
            adapter = self.dir / "adapter"
            shutil.rmtree(adapter, ignore_errors=True)
            adapter.mkdir()
            shutil.copy(out / "adapter_model.safetensors", adapter)
            shutil.copy(out / "adapter_config.json", adapter)
            self.change(adapter / "adapter_config.json", **{key: value})
            place = f"adapter_config.json: {key if key != EVIL else 'a key'}"
            self.goes(place, "inspect", "adapter", adapter, arrives=key == "base_model_name_or_path")
            self.goes(place, "inspect", "adapter", adapter, "--json", arrives=False)
            self.goes(place, "generate", "--model", TINY, "--adapter", adapter, "--prompt", "Hi", "--max-new-tokens", "1", arrives=False)
            self.goes(place, "merge", "--model", TINY, "--adapter", adapter, "--output", "m", "--dry-run", arrives=False)
        content = (out / "adapter_model.safetensors").read_bytes()
        begin = 8 + int.from_bytes(content[:8], "little")
        text = json.dumps({k.replace("q_proj", EVIL): v for k, v in json.loads(content[8:begin]).items()}).encode()
        shutil.copy(out / "adapter_config.json", adapter)
        (adapter / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])
        self.goes("a tensor of an adapter", "inspect", "adapter", adapter, arrives=False)
        self.goes("a tensor of an adapter", "eval", "--model", TINY, "--adapter", adapter, "--data", self.dir / "rows.jsonl", arrives=False)

    def test_checkpoints(self):
        out = self.trained()
        state = out / "checkpoint-2/trainer_state.json"
        tree = json.loads(state.read_text())
        for key in ("run", "base", "data", "settings", "format", "best", EVIL):
            forged = tree | {key: {EVIL: EVIL, "learning_rate": EVIL} if key == "settings" else EVIL}
            state.write_text(json.dumps(forged))
            for sums in (True, False):
                if not sums:
                    (out / "checkpoint-2/checksums.xxh128").unlink(missing_ok=True)
                place = f"trainer_state.json: {key if key != EVIL else 'a key'}"
                self.goes(place, "inspect", "checkpoint", out / "checkpoint-2", arrives=False)
                self.goes(place, "train", "--model", TINY, "--data", self.dir / "rows.jsonl", "--output", "other", "--max-steps", "2", "--dry-run",
                          "--resume", out / "checkpoint-2", arrives=False)
        state.write_text(json.dumps(tree))
        (out / "checkpoint-2/checksums.xxh128").write_bytes(b"0" * 32 + b"  " + RAW + b"\n")
        self.goes("a list of checksums", "inspect", "checkpoint", out / "checkpoint-2", arrives=False)

    def evil(self, value):
        """Every text of a tree with the planted one after it, and a key more in every object."""
        if isinstance(value, dict):
            return {k: self.evil(v) for k, v in value.items()} | {EVIL: EVIL}
        if isinstance(value, list):
            return [self.evil(v) for v in value]
        return value + EVIL if isinstance(value, str) else value

    def forge(self, out, change):
        tree = change(json.loads((out / "run.json").read_text()))
        (out / "run.json").write_text(json.dumps(tree))
        return tree

    def test_runs(self):
        out = self.trained()
        (out / f"checkpoint-{NAMED}").mkdir()
        def everything(tree):
            forged = self.evil(tree)
            forged["pieces"][-1] |= {"how": "failed", "why": EVIL, "status": 4}
            return forged
        self.forge(out, everything)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        lines += [{"event": "sample", "step": 2, "prompt": EVIL, "text": EVIL, "sample_seconds": 1}, {"event": EVIL}, {"event": "end", "how": EVIL}]
        kept = [line if line.get("event") == "sample" or "step" in line else self.evil(line) | {"event": line["event"]} for line in lines]
        (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept) + EVIL + "\n")
        self.goes("run.json and metrics.jsonl", "watch", out)
        self.goes("run.json and metrics.jsonl", "watch", out, "--json")
        self.goes("run.json and metrics.jsonl", "report", out, arrives=False)
        self.goes("run.json and metrics.jsonl", "report", out, "--json")
        self.page("run.json and metrics.jsonl", out / "report.html")
        self.goes("run.json", "inspect", "adapter", out, arrives=False)
        with open(out / "run.lock", "w") as lock:                       # a run that goes on
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(f"{os.getpid()} {EVIL}\n")
            lock.flush()
            self.goes("run.lock", "watch", out, "--json")

    # --- a hub -------------------------------------------------------------------------------------------------------------------

    def test_a_hub(self):
        name = (MARKS + WORD).replace("\r", "").replace("\x1b", "").replace("\x07", "").replace("\x7f", "") + ".json"
        entry = {"rfilename": name, "size": 3, "blobId": "0" * 40}
        self.hub.extra = [entry]
        self.goes("a file of a hub", "pull", NAME, "--include", "*", "--dry-run", arrives=False)
        self.goes("a file of a hub", "pull", NAME, "--include", "*", "--dry-run", "--json", arrives=False)
        self.goes("a file of a hub", "pull", NAME, "--include", "*", arrives=False)
        self.hub.extra = [entry | {"rfilename": EVIL}]
        self.goes("a file of a hub, with controls", "pull", NAME, "--include", "*", "--dry-run", arrives=False)
        self.hub.extra = []
        for key in ("id", "sha", "gated", "siblings"):
            def fault(handler, kind, _, key=key):
                if kind == "api":
                    handler.answer(200, json.dumps(handler.server.hub.listing("blobs=true") | {key: EVIL}).encode())
                return kind == "api"
            self.hub.fault = fault
            self.goes(f"a hub's {key}", "pull", NAME, "--dry-run", arrives=False)
        for code in (400, 403, 404, 429, 500):
            def refuse(handler, kind, _, code=code):
                plain = NAMED.replace("\n", "").encode().decode("latin-1")
                handler.answer(code, json.dumps({"error": EVIL}).encode(), X_Error_Message=plain, X_Error_Code=plain, Retry_After="0")
                return True
            self.hub.fault = refuse
            if code not in (429, 500):                                  # those it waits for
                self.goes(f"a hub's message of {code}", "pull", NAME, arrives=False)
        self.hub.fault = None
        self.goes("a revision", "pull", NAME, "--revision", NAMED, arrives=False)
        refs = self.model / "refs"
        refs.mkdir(parents=True)
        (refs / "main").write_text(EVIL)
        self.goes("a commit of the cache", "plan", "--model", NAME, arrives=False)
        self.assertEqual(len(COMMIT), 40)

    # --- configurations ----------------------------------------------------------------------------------------------------------

    def test_configurations(self):
        quoted = '"' + "".join(f"\\U{ord(c):08x}" for c in EVIL) + '"'
        for place, text in (("a key of YAML", f"{quoted}: 1\n"), ("a value of YAML", f"model: {quoted}\ndata: {quoted}\nresume: {quoted}\n"),
                            ("a number of YAML", f"learning_rate: {quoted}\n"), ("a word of YAML", f"dtype: {quoted}\n"),
                            ("broken YAML", f"a: [{quoted}\n"), ("raw YAML", f"{MARKS}{WORD}: 1\n"),
                            ("a key of Axolotl", f"base_model: {quoted}\ndatasets: [{{path: {quoted}, type: {quoted}}}]\nadapter: lora\n{quoted}: {quoted}\n"),
                            ("a value of Axolotl", f"base_model: {quoted}\ndatasets: [{{path: {quoted}, type: alpaca}}]\nadapter: lora\nlora_r: 8\n"
                             "lora_alpha: 16\nlearning_rate: 1e-4\nmicro_batch_size: 2\nnum_epochs: 1\n"),
                            ("a value of LLaMA-Factory", f"model_name_or_path: {quoted}\nstage: sft\ndataset: {quoted}\ntemplate: {quoted}\nfinetuning_type: lora\n"),
                            ("a tag of YAML", f"model: !<{WORD}%1B> x\n"), ("an anchor of YAML", f"model: &{WORD}\u202e x\n")):
            (self.dir / "run.yaml").write_text(text)
            arrives = re.match("an? (key|value|number|word) ", place) is not None
            self.goes(place, "config", "convert", "run.yaml", arrives=arrives)
            self.goes(place, "config", "convert", "run.yaml", "--json", arrives=arrives)
            self.goes(place, "train", "run.yaml", arrives=False)
        (self.dir / "run.yaml").write_bytes(b"model: " + RAW)
        self.goes("YAML that is not UTF-8", "config", "convert", "run.yaml", arrives=False)
        os.rename(os.fsencode(self.dir) + b"/run.yaml", os.fsencode(self.dir) + b"/" + RAW + b".yaml")
        self.goes("the name of a configuration", "config", "convert", RAW + b".yaml", arrives=False)
        plain = b"model: x\nlearning_rate: 1e-4\n"
        (named := open(os.fsencode(self.dir) + b"/" + RAW + b".yaml", "wb")).write(plain)
        named.close()
        self.goes("the name of a configuration", "config", "convert", RAW + b".yaml")
        self.goes("the name of a configuration", "config", "convert", RAW + b".yaml", "--json")


if __name__ == "__main__":
    main(Strangers, Strangers)
