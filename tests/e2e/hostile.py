#!/usr/bin/env python3
"""Files that somebody made to do harm, given to the program: those of the fuzzers' corpora, and large ones made here.

    hostile.py HONE ASSETS DATA [--large]       --large: all of them, else every third of the small ones

Each run ends with a documented code and, unless the file is good after all, with a message that names a file. Above what the same
command takes for a good file it takes at most a second of the processor, more on a slow one, and 4 times the file's size of memory
and a constant: a row that is unpacked may have 64 MiB, and so may a template's values.
"""
import collections
import concurrent.futures
import gzip
import itertools
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures
from case import CHAT, HONE, SANITIZED, TINY, Case, main

CORPUS = pathlib.Path(__file__).parent.parent / "fuzz/corpus"
CODES = (0, 2, 3, 4, 5, 7, 8, 9)            # not 1, a bug; and no signal
FACTOR, CONSTANT = 4, 72e6
VERDICT = "hone: the data would stop a run: "      # of rows that nothing is wrong with, by a template that does not print them
EVERY = 16 if SANITIZED else 1 if "--large" in sys.argv else 3      # of the small files, all of which the fuzzers' own tests replay

Run = collections.namedtuple("Run", "code err seconds memory")


def slower():
    """How many times as long this machine takes for such work, reading what has many small parts, as those the second is meant for."""
    text = json.dumps({f"k{i}": {} for i in range(300_000)})
    def once():
        start = time.process_time()
        json.loads(text)
        return time.process_time() - start
    return max(1, min(once() for _ in range(5)) / 0.25)


SECONDS = slower() * float(os.environ.get("HONE_SLOWER", 1))


def measure(command, limits=lambda: None):
    """The program's code, message, processor time and peak of memory."""
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen([HONE, *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, preexec_fn=limits)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        text = err.read().decode(errors="replace")
    return Run(process.returncode, text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def measure_limited(command):
    """The same of a program that is ended after so many seconds of the processor: what reads a terabyte takes minutes."""
    return measure(command, lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)))


def parts(content, count):
    """The texts between zero bytes, as the fuzz targets take them."""
    return (content.split(b"\0", count - 1) + [b""] * count)[:count]


def safetensors(content):
    """As fuzz_put_safetensors."""
    if not content.startswith(b"{"):
        return content
    header, data = parts(content, 2)
    return struct.pack("<Q", len(header)) + header + data


def parquet(content):
    """As fuzz_parquet.c."""
    if content[:1] != b"F" or len(content) < 3:
        return content
    pages = struct.unpack("<H", content[1:3])[0]
    return parquet_file(content[3:3 + pages], content[3 + pages:])


def parquet_file(pages, footer):
    return b"PAR1" + pages + footer + struct.pack("<I", len(footer)) + b"PAR1"


def thrift(*fields):
    """A struct of Thrift's compact protocol: (number, value) each; an int is an i64, a list has structs."""
    def varint(n):
        return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])
    out = b""
    for number, value in fields:
        kind, body = (6, varint(value << 1)) if isinstance(value, int) else (8, varint(len(value[0])) + value[0]) if isinstance(value, tuple) else \
            (9, b"\xfc" + varint(len(value)) + b"".join(value)) if isinstance(value, list) else (12, value)
        out += bytes([kind]) + varint(number << 1) + body
    return out + b"\0"


def parquet_page(body, values, levels=b"\2\1", packed=True, **header):
    """A data page of version 2, of one column of strings."""
    data = gzip.compress(body, 1) if packed else body
    size = header.get("size", len(body)) + len(levels)
    return thrift((1, 3), (2, size), (3, len(data) + len(levels)), (8, thrift((1, values), (4, header.get("encoding", 0)), (5, len(levels)), (6, 0)))) \
        + levels + data


def parquet_text(pages, values, rows, groups=1, columns=1):
    """A file with columns that all lie in the same place, in row groups that do."""
    element = lambda name, *more: thrift((3, 1), (4, (name,)), *more)
    chunk = thrift((3, thrift((1, 6), (4, 2), (5, values), (7, len(pages)), (9, 4))))
    names = [b"text", b"prompt", b"completion", b"system", b"input"][:columns]
    schema = [element(b"schema", (5, columns)), *(thrift((1, 6), (3, 1), (4, (name,)), (6, 0)) for name in names)]
    group = thrift((1, [chunk] * columns), (3, rows))
    return parquet_file(pages, thrift((1, 2), (2, schema), (3, rows * groups), (4, [group] * groups)))


def parquet_absent(leaves, rows):
    """A struct of so many columns, which no row has."""
    page = parquet_page(b"", rows, run_of(rows, 0), packed=False)
    chunk = thrift((3, thrift((1, 6), (4, 0), (5, rows), (7, len(page)), (9, 4))))
    schema = [thrift((4, (b"schema",)), (5, 1)), thrift((3, 1), (4, (b"messages",)), (5, leaves)),
              *(thrift((1, 6), (3, 1), (4, (b"k%d" % i,)), (6, 0)) for i in range(leaves))]
    return parquet_file(page, thrift((1, 2), (2, schema), (3, rows), (4, [thrift((1, [chunk] * leaves), (3, rows))])))


def run_of(count, level=1):
    """Levels: one, so many times."""
    out, n = b"", count << 1
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n, level])


def zstd(begin, letter, blocks, end):
    """Packed: a text, 128 KB of a letter so many times, and a text, with a window of 8 MB."""
    block = lambda kind, size, last=0: struct.pack("<I", size << 3 | kind << 1 | last)[:3]
    return b"\x28\xb5\x2f\xfd\0\x68" + block(0, len(begin)) + begin + (block(1, 1 << 17) + letter) * blocks + block(0, len(end), 1) + end


def zstd_again(text, blocks):
    """Packed: a text of at most 32 letters, and 128 KB of its repetitions so many times, 12 bytes each: one match in each block."""
    match = struct.pack("<I", 1 << 20 | len(text) + 3 - 16 << 16 | 131072 - 65539)[:3]     # the end, 4 bits of offset, 16 of length
    first = struct.pack("<I", len(text) << 3)[:3] + text
    again = struct.pack("<I", 9 << 3 | 2 << 1)[:3] + b"\0\1\x54\0\4\x34" + match
    return b"\x28\xb5\x2f\xfd\0\x68" + first + again * blocks + struct.pack("<I", 1)[:3]


def tensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def gguf(pairs, tensor_count, content):
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, pairs) + content


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


def numbered(start, each, end, count):
    """A text of so many pieces, each with its number."""
    return start + b",".join(each % i for i in range(count)) + end


def make():
    """Large files: (what it is called in its place, what is wrong with it, its bytes)."""
    config = json.loads((TINY / "config.json").read_text())
    wide = {"dtype": "F32", "shape": [2**31, 2**31], "data_offsets": [0, 8]}
    deep, empty = b"[" * 1_000_000, b"[" + b"{}," * 5_000_000 + b"{}]"
    million = 1_000_000
    names, more = (numbered(b"{", b'"k%d":0', b"}", count) for count in (300_000, 1_300_000))
    no_tensors = numbered(b"{", b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}', b"}", million)
    pairs = b"".join(gguf_text(b"k%d" % i) + struct.pack("<IB", 0, 7) for i in range(million))
    infos = b"".join(gguf_text(b"t%d" % i) + struct.pack("<IQIQ", 1, 32, 0, 128 * i) for i in range(million))
    tokens = struct.pack("<I", 9) + struct.pack("<IQ", 8, million) + gguf_text(b"a") * million
    zeros = gzip.compress(b"\0" * 150_000_000, 1)
    spaces = gzip.compress(b" " * 150_000_000, 1)
    lines = gzip.compress(b"\n" * 150_000_000, 1)
    megabytes = parquet_page(struct.pack("<I", 30_000_000) + b"a" * 30_000_000, 1)
    words = gzip.compress(struct.pack("<I", 20_000) + b"a" * 20_000)
    words = thrift((1, 2), (2, 20_004), (3, len(words)), (7, thrift((1, 1), (2, 0)))) + words
    tables = [
        ("rows.csv", "open", b'text\n"' + b"a" * 70_000_000), ("rows.csv", "fields", b"a," * 20_000_000), ("rows.csv", "lines-packed", lines),
        ("rows.csv", "spaces-packed", spaces), ("rows.csv", "quotes", b"text\n" + b'""' * 20_000_000),
        ("rows.csv", "quotes-packed", gzip.compress(b'text\n"' + b'""' * 70_000_000 + b'"', 1)),
        ("rows.csv", "zeros-packed", gzip.compress(b'text\n"' + b"\0" * 15_000_000 + b'"', 1)),
        ("rows.parquet", "nulls", parquet_text(parquet_page(b"", 2**31 - 1, run_of(2**31 - 1, 0)), 2**31 - 1, 2**31 - 1)),
        ("rows.parquet", "a-large-page", parquet_text(megabytes, 1, 1)), ("rows.parquet", "large-pages", parquet_text(megabytes, 1, 1, columns=5)),
        ("rows.parquet", "large-pages-again", parquet_text(megabytes, 1, 1, groups=20_000)),
        ("rows.parquet", "a-size-that-lies", parquet_text(parquet_page(b"", 1, size=2**31 - 100), 1, 1)),
        ("rows.parquet", "one-value-many-times", parquet_text(words + parquet_page(b"\1" + run_of(9_999, 0), 9_999, run_of(9_999), encoding=8), 9_999, 9_999)),
        ("rows.parquet", "groups", parquet_text(b"\0" * 9, 0, 0, groups=900_000)),
        ("rows.parquet", "pages", parquet_text(parquet_page(b"", 0, b"", packed=False) * 900_000, 1, 1)),
        ("rows.parquet", "a-deep-header", parquet_text(b"\x1c" * 3_000_000, 1, 1)),
        ("rows.parquet", "a-deep-footer", parquet_file(b"", b"\x1c" * 3_000_000)),
        ("rows.parquet", "a-wide-schema", parquet_file(b"", thrift((1, 2), (2, [thrift((4, (b"a",)), (5, 2_000_000))] * 900_000)))),
        ("rows.parquet", "an-absent-struct", parquet_absent(2_000, 100_000)), ("rows.parquet", "an-absent-large-struct", parquet_absent(19_990, 100_000)),
        ("rows.parquet", "a-long-footer", parquet_file(b"", thrift((1, 2), (5, [thrift()] * 9_000_000)))),
    ]
    return tables + [
        ("config.json", "deep", deep), ("config.json", "empty-objects", empty), ("config.json", "names", names), ("config.json", "more-names", more),
        *(("config.json", key, json.dumps({**config, key: 2**31 - 1}).encode())
          for key in ("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "max_position_embeddings")),
        ("generation_config.json", "names", names), ("generation_config.json", "empty-objects", empty),
        ("model.safetensors", "deep", tensors(deep)), ("model.safetensors", "names", tensors(no_tensors)),
        ("model.safetensors", "empty-objects", tensors(empty)), ("model.safetensors", "wide", tensors({"a": wide}, b"\0" * 8)),
        ("model.safetensors", "pairs", tensors(numbered(b'{"__metadata__":{', b'"%d":""', b"}}", million))),
        ("model.safetensors", "overlap", tensors(numbered(b"{", b'"t%d":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}', b"}", 300_000), b"\0" * 64)),
        ("model.safetensors.index.json", "names", numbered(b'{"weight_map":{', b'"t%d":"one.safetensors"', b"}}", million)),
        ("model.safetensors.index.json", "shards", b'{"weight_map":{' + b",".join(b'"t%d":"s%d"' % (i, i) for i in range(300_000)) + b"}}"),
        ("model.safetensors.index.json", "deep", deep),
        ("tokenizer.json", "deep", deep), ("tokenizer.json", "names", names),
        ("tokenizer.json", "parts", numbered(b"{", b'"k%d":[' + b"[]," * 30_000 + b"0]", b"}", 40)),
        ("tokenizer.json", "parts-of-a-model", b'{"model":' + numbered(b"{", b'"k%d":[' + b"[]," * 30_000 + b"0]", b"}", 40) + b"}"),
        ("tokenizer.json", "tokens", numbered(b'{"model":{"type":"BPE","merges":[],"vocab":{', b'"t%d":2147483646', b"}}}", 300_000)),
        ("tokenizer.json", "holes", b'{"model":{"type":"BPE","merges":[],"vocab":{' + b",".join(b'"%d":%d' % (i, 8 * i) for i in range(million)) + b"}}}"),
        ("tokenizer_config.json", "deep", deep), ("tokenizer_config.json", "empty-objects", empty), ("tokenizer_config.json", "names", names),
        ("tokenizer_config.json", "more-names", more), ("tokenizer_config.json", "tokens", numbered(
            b'{"added_tokens_decoder":{', b'"%d":{"content":"<|t|>","lstrip":false,"normalized":false,"rstrip":false,"special":true}', b"}}", 60_000)),
        ("chat_template.jinja", "deep", b"{{" + b"(" * million), ("chat_template.jinja", "blocks", b"{% if a %}" * 100_000),
        ("chat_template.jinja", "doubling", b"{% set a = 'aaaaaaaa' %}" + b"{% set a = a + a %}" * 64 + b"{{ a }}"),
        ("chat_template.jinja", "a-long-prompt", b"{% set a = 'a' %}" + b"{% set a = a + a %}" * 16 + b"{% for m in messages %}{% if m.role == 'user' %}"
         b"{{ m.content }}{% else %}{{ a }}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ a }}b{% endif %}"),
        ("chat_template.jinja", "loops", b"{% for a in range(99999) %}" * 8 + b"{{ a }}" + b"{% endfor %}" * 8),
        ("chat_template.jinja", "sums", b"{{ 1" + b"+1" * million + b" }}"),
        ("chat_template.jinja", "output", b"{% for a in range(60000) %}" + b"abcdefgh " * 112 + b"{% endfor %}"),
        *(("chat_template.jinja", name, b"{% set a = ' ' * 500000 %}{% set b = 'b' * 50000 + ' ' %}{% for i in range(99999) %}"
           b"{% for j in range(999) %}{% set c = " + work + b" %}{% endfor %}{% endfor %}")
          for name, work in (("strips", b"a.strip(b)"), ("trims", b"a|trim"), ("items", b"a[-2]"), ("lengths", b"a|length"), ("parts", b"a[1:-1]"))),
        ("chat_template.jinja", "sorts", b"{% for a in range(999) %}{{ range(99999)|list|sort|length }}{% endfor %}"),
        ("chat_template.jinja", "copies", b"{% set a = 'a' * 9999999 %}{% for b in range(99999) %}{{ (a|upper)|length }}{% endfor %}"),
        ("model.gguf", "pairs", gguf(million, 0, pairs)), ("model.gguf", "tensors", gguf(0, million, infos)),
        ("model.gguf", "many", gguf(2**60, 2**60, b"")), ("model.gguf", "array", gguf(1, 0, gguf_text(b"tokenizer.ggml.tokens") + tokens)),
        ("rows.jsonl", "deep", deep), ("rows.jsonl", "long", b'{"messages": "' + b"a" * 70_000_000),
        ("rows.jsonl", "values", b'{"messages": ' + empty + b"}"), ("rows.jsonl", "numbers", b'{"messages": [' + b"0," * 10_000_000 + b"0]}"),
        ("rows.jsonl", "numbers-in-a-message", b'{"messages": [{"role": "user", "content": "a", "n": [' + b"0," * 900_000 + b"0]}]}"),
        ("rows.jsonl", "messages", numbered(b'{"messages": [', b'{"role":"user","content":"%d"}', b"]}", 90_000)),
        ("rows.jsonl", "zeros-packed", zeros), ("rows.jsonl", "spaces-packed", spaces), ("rows.jsonl", "lines-packed", lines),
        ("rows.jsonl", "broken-packed", zstd(b'{"messages": "', b"a", 500, b"x")),
        ("rows.jsonl", "parts-packed", gzip.compress(b"") * 300_000), ("rows.json", "open", b"[" + b" " * 70_000_000),
        ("adapter_config.json", "deep", deep), ("adapter_config.json", "empty-objects", empty), ("adapter_config.json", "names", names),
        ("adapter_config.json", "targets", numbered(b'{"peft_type":"LORA","r":8,"target_modules":[', b'"t%d"', b"]}", 200_000)),
        ("adapter_model.safetensors", "names", tensors(no_tensors)), ("adapter_model.safetensors", "wide", tensors({"a": wide}, b"\0" * 8)),
        ("trainer_state.json", "deep", deep), ("trainer_state.json", "names", names),
        ("trainer_state.json", "small-names", numbered(b"{", b'"k%d":0', b"}", 70_000)),
        ("checksums.xxh128", "lines", b"0" * 32 + b"  state.safetensors\n" * 20_000),
        ("checksums.xxh128", "itself", (b"0" * 32 + b"  checksums.xxh128\n") * 19_000),
        ("options.yaml", "deep", deep), ("options.yaml", "names", names), ("options.yaml", "large", b"#" * 999_999 + b"\n" + b"a: &a [*a]"),
        ("options.yaml", "keys", b"".join(b"seed%d: 1\n" % i for i in range(80_000))),
    ]


TERABYTE = 1 << 40


def hollow():
    """Files of a terabyte, nearly all of it holes: (name, what it is, how it begins, how it ends)."""
    zero = [(name, "hollow", b"", b"") for name in (
        "config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja", "adapter_config.json", "adapter_model.safetensors", "trainer_state.json",
        "state.safetensors", "checksums.xxh128", "options.yaml", "model.gguf", "rows.jsonl", "rows.csv", "rows.parquet", "run.json", "metrics.jsonl",
        "dataset_info.json", "prompts.txt")]
    key = gguf_text(b"tokenizer.ggml.tokens") + struct.pack("<I", 9)
    return zero + [
        ("model.gguf", "texts", gguf(1, 0, key + struct.pack("<IQ", 8, 1 << 36)), b""), ("model.gguf", "booleans", gguf(1, 0, key + struct.pack("<IQ", 7, 1 << 39)), b""),
        ("model.gguf", "a-text", gguf(1, 0, gguf_text(b"a") + struct.pack("<IQ", 8, 1 << 39)), b""),
        ("rows.parquet", "footer", b"PAR1", struct.pack("<I", 0xfffffff0) + b"PAR1"),
        ("rows.jsonl", "rows", json.dumps(CHAT).encode() + b"\n", b""), ("rows.jsonl", "packed", gzip.compress(json.dumps(CHAT).encode()), b""),
        ("tokenizer.json", "begun", b'{"model": {', b""), ("model.safetensors", "header", struct.pack("<Q", TERABYTE - 8) + b"{", b""),
    ]


class Hostile(Case):
    def setUp(self):
        super().setUp()
        self.chats = self.write("chats.jsonl", CHAT)
        self.adapter, self.out = self.dir / "adapter", self.dir / "out"
        self.train = ("train", "--model", TINY, "--data", self.chats, "--device", "cpu", "--max-steps", 2, "--output")
        self.ok(*self.train, self.adapter)
        self.ok(*self.train, self.out, "--save-steps", 1)
        self.number, self.good = itertools.count(), {}

    def links(self, like):
        """A copy of a directory, of links."""
        path = self.dir / f"{next(self.number)}"
        shutil.copytree(like, path, copy_function=os.symlink)
        return path

    def place(self, files):
        """The command that reads such files, whose names say what they are, and their folder."""
        name = next(iter(files))
        eval_it = ("eval", "--device", "cpu", "--data", self.chats, "--model")
        if name == "options.yaml" or name.startswith("rows") or name == "model.gguf":
            folder = self.dir / f"{next(self.number)}"
            folder.mkdir()
            at = folder / name
            command = (*self.train, folder / "out", "--config", at) if name == "options.yaml" else \
                ("inspect", "model", "--model", at) if name == "model.gguf" else ("inspect", "data", "--model", TINY, "--data", at)
        elif name.startswith("adapter"):
            folder = self.links(self.adapter)
            command = (*eval_it, TINY, "--adapter", folder)
        elif name in ("trainer_state.json", "state.safetensors", "checksums.xxh128"):
            output = self.links(self.out)
            folder = output / "checkpoint-1"
            shutil.rmtree(output / "checkpoint-2")
            command = (*self.train, output)
        else:
            folder = self.links(TINY)
            command = ("inspect", "data", "--model", folder, "--data", self.chats)
            if name in ("config.json", "model.safetensors", "model.safetensors.index.json"):
                command = (*eval_it, folder)
            if name == "model.safetensors.index.json":
                (folder / "model.safetensors").unlink()
        for each, content in files.items():
            (folder / each).unlink(missing_ok=True)
            if content is not None:
                (folder / each).write_bytes(content)
        return folder, command

    def baseline(self, folder, name, command):
        """What the command takes for good files."""
        if name not in self.good:
            like = {"rows.jsonl": self.chats, "rows.json": self.chats, "rows.parquet": CORPUS / "parquet/messages",
                    "rows.csv": self.write("good.csv", "text", "A text.")}.get(name)
            files = {name: like.read_bytes()} if like else {name: b"seed: 1\n"} if name == "options.yaml" else None
            if files is None and name != "model.gguf":
                files = {name: path.read_bytes() for path in (TINY / name, self.adapter / name, self.out / "checkpoint-1" / name)
                         if path.exists()} or {"config.json": (TINY / "config.json").read_bytes()}
            run = WORKERS.submit(measure, ("inspect", "model", "--model", TINY)).result() if files is None else WORKERS.submit(measure, self.place(files)[1]).result()
            self.assertEqual(run.code, 0, run.err)
            self.good[name] = run
        return self.good[name]

    def run_all(self, name, cases):
        """[(title, files)], and what they are; prints the largest figures."""
        placed = [(title, files, *self.place(files)) for title, files in cases]
        for _, files, folder, command in placed:
            self.baseline(folder, next(iter(files)), command)
        runs = list(WORKERS.map(measure, (command for *_, command in placed)))
        largest = {"seconds": (0, ""), "memory": (0, "")}
        for (title, files, _, command), run in zip(placed, runs):
            good, size = self.good[next(iter(files))], sum(len(f) for f in files.values() if f)
            seconds = run.seconds - good.seconds
            for _ in range(0 if SANITIZED else 2):              # a busy machine makes memory slow
                seconds = seconds if seconds < SECONDS / 2 else min(seconds, measure(command).seconds - good.seconds)
            more = {"seconds": seconds, "memory": run.memory - good.memory - FACTOR * size}
            largest = {key: max(was, (more[key], title)) for key, was in largest.items()}
            with self.subTest(title):
                self.assertIn(run.code, CODES, run.err)
                if run.code:
                    self.assertTrue(run.err.splitlines()[-1].startswith("hone: "), run.err)
                    self.assertTrue(str(self.dir) in run.err or VERDICT in run.err, run.err)
                if not SANITIZED:
                    self.assertLess(more["seconds"], SECONDS)
                    self.assertLess(more["memory"], CONSTANT)
        print(f"{len(runs)} files, {sum(run.code == 0 for run in runs)} of them good; the largest time {largest['seconds'][0]:.2f} s "
              f"({largest['seconds'][1]}), memory {largest['memory'][0] / 1e6:.0f} MB above {FACTOR} times the file ({largest['memory'][1]})",
              file=sys.stderr)
        figures.record("Hostile files", name, files=len(runs), good=sum(run.code == 0 for run in runs),
                       largest_time=f"{largest['seconds'][0]:.2f} s, {largest['seconds'][1]}",
                       largest_memory=f"{largest['memory'][0] / 1e6:.0f} MB above {FACTOR} times the file, {largest['memory'][1]}")

    def corpus(self, name):
        return sorted((CORPUS / name).iterdir())[::EVERY]

    def test_what_the_fuzzers_keep(self):
        names = {                                               # as the targets of tests/fuzz cut their input
            "config": ("config.json", "generation_config.json"),
            "shards": ("model.safetensors.index.json",),
            "tokenizer": ("tokenizer.json",),
            "jinja": ("chat_template.jinja",),
            "chat": ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"),
            "adapter": ("adapter_config.json",),
            "yaml": ("options.yaml",),
        }
        cases = []
        for target, files in names.items():
            for path in self.corpus(target):
                cut = [content or None if i else content for i, content in enumerate(parts(path.read_bytes(), len(files) + 1)[:len(files)])]
                cases.append((f"{target}/{path.name}", dict(zip(files, cut))))
        for target, file in (("safetensors", "model.safetensors"), ("gguf", "model.gguf"), ("row", "rows.jsonl"), ("rows", "rows.jsonl"),
                             ("parquet", "rows.parquet"), ("csv", "rows.csv")):
            take = {"safetensors": safetensors, "parquet": parquet, "csv": lambda content: parts(content, 2)[1]}.get(target, bytes)
            cases += [(f"{target}/{path.name}", {file: take(path.read_bytes())}) for path in self.corpus(target)]
        for target, one, other in (("model", "config.json", "model.safetensors"),
                                   ("adapter_weights", "adapter_config.json", "adapter_model.safetensors")):
            for path in self.corpus(target):
                text, content = parts(path.read_bytes(), 2)
                cases.append((f"{target}/{path.name}", {one: text, other: safetensors(content)}))
        for path in self.corpus("checkpoint"):
            place, sums, state = parts(path.read_bytes(), 3)
            cases.append((f"checkpoint/{path.name}", {"trainer_state.json": place, **({"checksums.xxh128": sums} if sums else {}),
                                                      **({"state.safetensors": safetensors(state)} if state else {})}))
        self.run_all("of the fuzzers", cases)

    def test_what_is_large(self):
        self.run_all("large", [(f"{name}: {title}", {name: content}) for name, title, content in make()[::EVERY if SANITIZED else 1]])

    def reads(self, name):
        """The commands that read a file of this name, which is put there by itself: {where it is: commands}."""
        folder, command = self.place({name: b""}) if not name.startswith(("run.", "metrics.", "dataset_", "prompts")) else (self.dir / f"{next(self.number)}", None)
        commands = [command]
        if name.startswith("rows"):
            commands.append(("eval", "--device", "cpu", "--model", TINY, "--data", folder / name))
        elif name == "model.gguf":
            commands.append(("eval", "--device", "cpu", "--model", folder / name, "--data", self.chats))
        elif name in ("run.json", "metrics.jsonl"):
            folder = self.links(self.out)
            commands = [("report", folder), ("inspect", "adapter", folder)]
        elif name == "dataset_info.json":
            folder.mkdir()
            (folder / "run.yaml").write_text(f"model_name_or_path: {TINY}\nstage: sft\nfinetuning_type: lora\ndataset: a\ndataset_dir: {folder}\noutput_dir: {folder}/out\n")
            commands = [("train", "--config", folder / "run.yaml")]
        elif name == "prompts.txt":
            folder.mkdir()
            commands = [(*self.train, folder / "out", "--sample-prompts", folder / name)]
        elif name.startswith("adapter"):
            commands += [("inspect", "adapter", folder), ("merge", "--model", TINY, "--adapter", folder, "--output", folder / "merged"),
                         (*self.train, folder / "out", "--init-adapter", folder)]
        elif name in ("trainer_state.json", "state.safetensors", "checksums.xxh128"):
            commands += [("inspect", "checkpoint", folder), (*self.train, self.dir / "resumed", "--resume", folder)]
        elif command and command[0] != "train":
            commands += [("eval", "--device", "cpu", "--model", folder, "--data", self.chats),
                         ("merge", "--model", folder, "--adapter", self.adapter, "--output", folder / "merged"),
                         ("train", "--model", folder, "--data", self.chats, "--device", "cpu", "--max-steps", 1, "--finetuning-type", "full", "--output", folder / "out")]
        return folder / name, commands

    def test_what_has_holes(self):
        """Fails if a file is hashed, mapped or searched before its size is looked at: a terabyte of holes takes minutes, or all memory."""
        cases = []
        for name, title, begin, end in hollow():
            at, commands = self.reads(name)
            at.unlink(missing_ok=True)
            with open(at, "wb") as file:
                file.write(begin)
                file.truncate(TERABYTE)
                file.seek(-len(end), os.SEEK_END)
                file.write(end)
            cases += [(f"{name}: {title}: {' '.join(map(str, command[:2]))}", command) for command in commands]
        runs = list(WORKERS.map(measure_limited, (command for _, command in cases)))
        largest = max((run.seconds, run.memory, title) for (title, _), run in zip(cases, runs))
        for (title, command), run in zip(cases, runs):
            with self.subTest(title):
                self.assertIn(run.code, CODES, run.err)
                self.assertTrue(str(self.dir) in run.err or not run.code, run.err)
                if not SANITIZED:
                    self.assertLess(run.seconds, SECONDS)
                    self.assertLess(run.memory, 200e6)
        print(f"{len(runs)} files of a terabyte; the largest time {largest[0]:.2f} s ({largest[2]})", file=sys.stderr)

    def test_what_is_packed_small(self):
        """Fails if a packed file may have rows without end: 67 kB become gigabytes of tokens. What was encoded before does not stay."""
        row, cache = b'{"text":"a"}\n', self.dir / "cache/hone/tokens"
        kept = sorted(cache.iterdir())
        files = [("rows.zst", zstd_again(row, 5_580), "rows in"), ("rows.gz", gzip.compress(row * 2_700_000), "rows in"),
                 ("few.zst", zstd(b'{"text": "', b"a", 300, b'"}\n') * 3, "times as much")]
        for name, content, says in files:
            at = self.dir / name
            at.write_bytes(content)
            for command in (("inspect", "data"), ("eval", "--device", "cpu")):
                with self.subTest(f"{name}: {command[0]}"):
                    run = WORKERS.submit(measure_limited, (*command, "--model", TINY, "--data", at)).result()
                    print(f"{name}, {len(content)} bytes, {command[0]}: {run.seconds:.2f} s, {run.memory / 1e6:.0f} MB", file=sys.stderr)
                    self.assertEqual(run.code, 8, run.err)
                    self.assertIn(str(at), run.err)
                    self.assertIn(says, run.err)
                    self.assertIn("If you trust it, unpack it", run.err)
                    self.assertEqual(sorted(cache.iterdir()), kept)
                    if not SANITIZED:
                        self.assertLess(run.seconds, 2 * SECONDS)
                        self.assertLess(run.memory, 200e6)

    def test_what_is_cut_off(self):
        """Each file of a model, an adapter and a checkpoint, after some of its bytes."""
        cases = []
        for folder in (TINY, self.adapter, self.out / "checkpoint-1"):
            for path in sorted(folder.iterdir()):
                if path.suffix in (".json", ".safetensors", ".jinja"):
                    whole = path.read_bytes()
                    cases += [(f"{path.name} of {at} bytes", {path.name: whole[:at]}) for at in (0, 7, len(whole) // 2, len(whole) - 1)]
        self.run_all("truncated", cases[::EVERY])


if __name__ == "__main__":
    WORKERS = concurrent.futures.ProcessPoolExecutor(2)     # of little memory: a program's peak includes that of the process it is started by
    list(WORKERS.map(measure, [("--version",)] * 2))
    main(Hostile, Hostile)
