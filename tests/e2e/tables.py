#!/usr/bin/env python3
"""Tables and directories as data: the same run from CSV, TSV and JSON, columns by their names or chosen, and what goes wrong.

    tables.py HONE ASSETS DATA

Parquet files that pyarrow writes are trained on in tests/oracle/parquet.py.
"""
import csv
import gzip
import json

from case import TINY, Case, main

TEXTS = [(f"Question {i}: is it \"so\",\nor not?", f"It is {'so' if i % 3 else 'not so, 日本語'}.") for i in range(24)]


class Tables(Case):
    def table(self, name, header, rows, **how):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, **how).writerows([header, *rows])
        return path

    def train(self, data, *more):
        out = self.dir / f"out{len(list(self.dir.glob('out*')))}"
        self.ok("train", "--model", TINY, "--data", data, "--output", out, "--max-steps", 4, "--device", "cpu", *more)
        return (out / "adapter_model.safetensors").read_bytes()

    def test_every_form_gives_the_same_adapter(self):
        rows = self.write("rows.jsonl", *({"prompt": q, "completion": a} for q, a in TEXTS))
        truth = self.train(rows)
        usual = self.table("a.csv", ["prompt", "completion"], TEXTS)
        self.assertEqual(self.train(usual), truth)
        self.assertEqual(self.train(self.table("a.tsv", ["prompt", "completion"], TEXTS, delimiter="\t")), truth)
        self.assertEqual(self.train(self.table("e.csv", ["prompt", "completion"], TEXTS, delimiter=";", quoting=csv.QUOTE_ALL)), truth)
        (self.dir / "p.csv.gz").write_bytes(gzip.compress(usual.read_bytes()))
        self.assertEqual(self.train(self.dir / "p.csv.gz"), truth)
        named = self.table("n.csv", ["", "answer", "text", "question"], [(i, a, "x", q) for i, (q, a) in enumerate(TEXTS)])
        mapping = ("--column-mapping", "prompt=question,completion=answer")
        self.assertEqual(self.train(named, *mapping), truth)
        self.assertEqual(self.train(self.write("n.jsonl", *({"text": "x", "answer": a, "question": q} for q, a in TEXTS)), *mapping), truth)
        parts = [self.table(f"set/data/train-{i:05}-of-00002.csv", ["prompt", "completion"], TEXTS[12 * i:12 * i + 12]) for i in range(2)]
        self.table("set/data/validation-00000-of-00001.csv", ["prompt", "completion"], TEXTS[:3])
        self.assertEqual(self.train(parts[0].parents[1]), truth)

    def test_a_mapping_is_part_of_what_is_cached(self):
        """Fails if the key of the cache of tokens lacks the mapping."""
        data = self.table("a.csv", ["text", "other"], [("word " * 9, "a b")] * 3)
        tokens = [json.loads(self.ok("eval", "--model", TINY, "--data", data, "--json", *mapping))["tokens"]
                  for mapping in ((), ("--column-mapping", "text=other"))]
        self.assertGreater(tokens[0], tokens[1])

    def test_a_directory_has_its_own_validation_data(self):
        for name, count in (("train", 6), ("validation", 2), ("test", 3)):
            self.table(f"set/{name}.csv", ["prompt", "completion"], TEXTS[:count])
        result = json.loads(self.ok("train", "--model", TINY, "--data", self.dir / "set", "--output", self.dir / "out", "--max-steps", 1, "--json"))
        self.assertEqual((result["data"]["rows"], result["data"]["eval_rows"]), (6, 2))
        self.assertEqual(json.loads(self.ok("eval", "--model", TINY, "--data", self.dir / "set", "--json"))["rows"], 3)
        (self.dir / "set/valid.jsonl").write_text("{}")
        self.fails(2, "train", "--model", TINY, "--data", self.dir / "set", "--output", self.dir / "out", says=["both ", "validation.csv"])

    def test_messages_of_mistakes(self):
        def says(code, data, *words, mapping=()):
            self.fails(code, "eval", "--model", TINY, "--data", data, *mapping, says=words)
        says(9, self.table("a.csv", ["question", "answer"], TEXTS), "a.csv: the file's columns are of no known kind", '"question", "answer"',
             "--column-mapping", "prompt=question,completion=answer")
        says(9, self.table("a.csv", ["prompt", "completion"], [("a", "b"), ("c", "d", "e")]), "a.csv:3: ", "3 fields", "the header 2")
        says(9, self.table("a.csv", ["prompt", "completion"], [("a\nb", "c"), ("d", "")]), "a.csv:4: ", '"prompt" but no "completion"')
        says(9, self.write("b.csv", "text", '"open'), "b.csv:2: ", "never closed")
        says(2, self.table("a.csv", ["q", "a"], TEXTS), 'the column "x"', '"q", "a"', mapping=("--column-mapping", "text=x"))
        says(9, self.write("b.jsonl", {"q": "a"}), "b.jsonl:1: ", 'its keys are "q"', "--column-mapping")
        report = json.loads(self.ok("inspect", "data", "--model", TINY, "--data", self.table("c.csv", ["text"], [["a\nb"], ["c"]]), "--json"))
        self.assertEqual([row["line"] for row in report["shown"]], [2, 4])


main(Tables, Tables)
