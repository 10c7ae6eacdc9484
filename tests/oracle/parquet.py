#!/usr/bin/env python3
"""Parquet files that pyarrow writes, read by hone: the same rows as pyarrow's own.

    parquet.py TOOL HONE MODEL

Every shape is written in several ways (codecs, versions of pages, dictionaries, sizes of pages and row groups); what hone does not
read is refused by its name. Training on a file of messages gives the same bytes as on its rows as JSON.
"""
import datetime
import decimal
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

from oracle import Checks

TOOL, HONE, MODEL = sys.argv[1:]
ROWS = 777
rng = random.Random(15)
WORDS = ["Grüße", "日本語", "a\tb", "x\ny", '"quoted"', "back\\slash", "🙂", "", "ok.", "\x01\x1f", "null", " "]


def word():
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(5)))


def maybe(make, share=0.2):
    return lambda: None if rng.random() < share else make()


def several(make, most=4):
    return lambda: [make() for _ in range(rng.randrange(most + 1))]


def fields(**makes):
    return lambda: {name: make() for name, make in makes.items()}


def integer(bits, signed=True):
    return lambda: rng.randrange(-2 ** (bits - 1), 2 ** (bits - 1)) if signed else rng.randrange(2 ** bits)


MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
CALLS = pa.list_(pa.struct([("type", pa.string()), ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())]))]))
call = fields(type=lambda: "function", function=maybe(fields(name=word, arguments=maybe(word))))
real = lambda: rng.choice([0.0, -0.0, 1.0, 1e300, 5e-324, math.pi, rng.random(), 1 / 3])

# name -> (type, how a value is made)
SHAPES = {
    "string": (pa.string(), word),
    "string, some null": (pa.string(), maybe(word)),
    "string, all null": (pa.string(), lambda: None),
    "string, required": (pa.field("a", pa.string(), nullable=False), word),
    "large string": (pa.large_string(), maybe(word)),
    "few strings": (pa.string(), maybe(lambda: rng.choice(["a", "bc", "def"]))),
    "one string": (pa.string(), lambda: "the same"),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), maybe(lambda: rng.choice(WORDS))),
    "long strings": (pa.string(), lambda: word() * rng.randrange(200)),
    "strings that headers have too": (pa.string(), lambda: "".join(rng.choices("abc", k=4000))),       # as the smallest and the largest
    "bool": (pa.bool_(), maybe(lambda: rng.random() < 0.5)),
    "bool, runs": (pa.bool_(), lambda: rng.random() < 0.02),
    "int8": (pa.int8(), maybe(integer(8))),
    "int16": (pa.int16(), integer(16)),
    "int32": (pa.int32(), maybe(integer(32))),
    "int64": (pa.int64(), maybe(integer(64))),
    "uint8": (pa.uint8(), integer(8, False)),
    "uint32": (pa.uint32(), maybe(integer(32, False))),
    "uint64": (pa.uint64(), maybe(integer(64, False))),
    "float": (pa.float32(), maybe(real)),
    "double": (pa.float64(), maybe(real)),
    "nothing": (pa.null(), lambda: None),
    "list of strings": (pa.list_(pa.string()), maybe(several(maybe(word)))),
    "list of numbers": (pa.list_(pa.int32()), several(integer(9))),
    "list of required": (pa.list_(pa.field("item", pa.string(), nullable=False)), maybe(several(word))),
    "list of lists": (pa.list_(pa.list_(pa.int64())), maybe(several(maybe(several(maybe(integer(7))))))),
    "list of lists of lists": (pa.list_(pa.list_(pa.list_(pa.string()))), maybe(several(maybe(several(maybe(several(maybe(word)), 0.3))), 3))),
    "large list": (pa.large_list(pa.string()), maybe(several(maybe(word)))),
    "list of a fixed size": (pa.list_(pa.int32(), 3), lambda: [integer(9)() for _ in range(3)]),
    "struct": (pa.struct([("a", pa.string()), ("b", pa.int32())]), maybe(fields(a=maybe(word), b=maybe(integer(9))))),
    "struct, required": (pa.field("a", pa.struct([pa.field("a", pa.string(), nullable=False)]), nullable=False), fields(a=word)),
    "struct of structs": (pa.struct([("a", pa.struct([("b", pa.struct([("c", pa.bool_())]))]))]),
                          maybe(fields(a=maybe(fields(b=maybe(fields(c=maybe(lambda: True)))))))),
    "struct of lists": (pa.struct([("a", pa.list_(pa.string())), ("b", pa.list_(pa.float64()))]),
                        maybe(fields(a=maybe(several(word)), b=maybe(several(maybe(real)))))),
    "messages": (pa.list_(MESSAGE), several(fields(role=lambda: rng.choice(["user", "assistant", "system"]), content=word), 7)),
    "messages, some null": (pa.list_(MESSAGE), maybe(several(maybe(fields(role=maybe(word), content=maybe(word)))))),
    "messages with calls": (pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", CALLS)])),
                            maybe(several(fields(role=word, content=maybe(word), tool_calls=maybe(several(maybe(call))))))),
    "messages, required": (pa.field("a", pa.list_(pa.field("element", pa.struct([
        pa.field("role", pa.string(), nullable=False), pa.field("content", pa.string(), nullable=False)]), nullable=False)), nullable=False),
        several(fields(role=word, content=word))),
}

# How a file is written.
WAYS = {
    "plain": dict(compression="none", use_dictionary=False),
    "as usual": {},
    "zstd": dict(compression="zstd"),
    "gzip, small pages": dict(compression="gzip", data_page_size=300, write_batch_size=16, row_group_size=101),
    "version 2": dict(compression="zstd", data_page_version="2.0", data_page_size=300, write_batch_size=16),
    "version 2, Snappy, no dictionary": dict(data_page_version="2.0", use_dictionary=False, row_group_size=250),
    "version 2, not packed": dict(data_page_version="2.0", compression="none", write_page_checksum=True),
    "PLAIN_DICTIONARY": dict(version="1.0", compression="gzip", dictionary_pagesize_limit=200, write_page_checksum=True),
    "old names of lists": dict(use_compliant_nested_type=False, write_statistics=False, row_group_size=64),
}


def comparable(value):
    """As JSON has it: what is not finite is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [comparable(v) for v in value]
    return {k: comparable(v) for k, v in value.items()} if isinstance(value, dict) else value


def ours(path):
    out = subprocess.run([TOOL, path], stdout=subprocess.PIPE, check=False).stdout.decode()
    return [json.loads(line) for line in out.split("\n") if line]


def shapes(checks, folder):
    path, files = folder / "a.parquet", 0
    for shape, (kind, make) in SHAPES.items():
        field = kind if isinstance(kind, pa.Field) else pa.field("a", kind)
        values = [make() for _ in range(ROWS)]
        table = pa.table({"a": pa.array(values, field.type), "number": pa.array(range(ROWS))}, schema=pa.schema([field, ("number", pa.int64())]))
        good = []
        for name, way in WAYS.items():
            try:
                pq.write_table(table, path, **way)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                continue
            files += 1
            truth = comparable(pq.read_table(path).to_pylist())
            got = ours(path)
            if got == truth and len(got) == ROWS:
                good.append(name)
            else:
                wrong = next((i for i, (a, b) in enumerate(zip(got, truth)) if a != b), min(len(got), len(truth)))
                checks.same_text(f"{shape}, {name}, row {wrong}", json.dumps(got[wrong:wrong + 1]), json.dumps(truth[wrong:wrong + 1]))
        checks.equal(f"{shape}: {len(good)} files", len(good) >= 8, True)
    many = pa.table({f"c{i}": pa.array([f"{i} {r}" for r in range(50)]) for i in range(300)})
    pq.write_table(many, path)
    checks.equal("300 columns", ours(path) == pq.read_table(path).to_pylist(), True)
    pq.write_table(pa.table({"a": pa.array([], pa.list_(MESSAGE))}), path)
    checks.equal("no rows", ours(path), [])
    print(f"{files} files of {len(SHAPES)} shapes")


def refusals(checks, folder):
    path = folder / "a.parquet"
    text, now = pa.array(["a", "b"] * 400), datetime.datetime(2024, 1, 2, 3, 4, 5)
    cases = [
        ("DELTA_BYTE_ARRAY", text, dict(use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})),
        ("DELTA_LENGTH_BYTE_ARRAY", text, dict(use_dictionary=False, column_encoding={"a": "DELTA_LENGTH_BYTE_ARRAY"})),
        ("DELTA_BINARY_PACKED", pa.array(range(9)), dict(use_dictionary=False, column_encoding={"a": "DELTA_BINARY_PACKED"})),
        ("BYTE_STREAM_SPLIT", pa.array([0.5] * 9), dict(use_dictionary=False, column_encoding={"a": "BYTE_STREAM_SPLIT"})),
        ("Brotli", text, dict(compression="brotli")),
        ("LZ4", text, dict(compression="lz4")),
        ("TIMESTAMP", pa.array([now]), {}),
        ("INT96", pa.array([now]), dict(use_deprecated_int96_timestamps=True)),
        ("DATE", pa.array([now.date()]), {}),
        ("TIME", pa.array([now.time()]), {}),
        ("DECIMAL", pa.array([decimal.Decimal("1.5")]), {}),
        ("BYTE_ARRAY without the mark", pa.array([b"ab"]), {}),
        ("FIXED_LEN_BYTE_ARRAY", pa.array([b"ab"], pa.binary(2)), {}),
        ("FLOAT16", pa.array([1.5], pa.float16()), {}),
        ("MAP", pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())), {}),
        ("MAP", pa.array([[{"m": [("k", "v")]}]], pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.string()))]))), {}),
    ]
    for name, array, way in cases:
        pq.write_table(pa.table({"a": array}), path, **way)
        got = ours(path)[-1]
        checks.equal(f"{name} is refused by name", (got.get("code"), name in got.get("error", ""), '"a"' in got.get("error", "")), (7, True, True))


def rows_of(count):
    return [{"messages": [{"role": "user", "content": f"Question {i}? {word()}"}, {"role": "assistant", "content": f"Answer {i}. {word()}"}]}
            for i in range(count)]


def train(data, output, *more):
    subprocess.run([HONE, "train", "--model", MODEL, "--data", data, "--output", output, "--max-steps", "6", "--device", "cpu",
                    "--per-device-train-batch-size", "4", *more], check=True, capture_output=True)
    return (pathlib.Path(output) / "adapter_model.safetensors").read_bytes()


def training(checks, folder):
    """The same adapter from JSON, from Parquet with columns that are not read, and from the parts of a data set's directory."""
    rows = rows_of(40)
    lines = folder / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    truth = train(lines, folder / "json")
    table = pa.table({"id": pa.array(range(40)), "messages": pa.array([r["messages"] for r in rows], pa.list_(MESSAGE)),
                      "at": pa.array([datetime.datetime(2024, 1, 1)] * 40)})
    pq.write_table(table, folder / "rows.parquet")
    checks.equal("Parquet gives the adapter that JSON gives", train(folder / "rows.parquet", folder / "parquet") == truth, True)
    data = folder / "set/data"
    data.mkdir(parents=True)
    for part, (begin, end) in enumerate(((0, 13), (13, 40))):
        pq.write_table(table.slice(begin, end - begin), data / f"train-{part:05}-of-00002.parquet", compression="zstd")
    checks.equal("parts give it too", train(folder / "set", folder / "parts") == truth, True)
    pq.write_table(table.rename_columns(["messages", "chat", "at"]), folder / "named.parquet")
    checks.equal("so does a column of another name", train(folder / "named.parquet", folder / "named", "--column-mapping", "messages=chat") == truth, True)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["HONE_CACHE"] = name
        shapes(checks, folder)
        refusals(checks, folder)
        training(checks, folder)
    checks.end()


main()
