"""How fast chat templates are rendered, and rows become ids and masks, compared with the Python libraries.

    templates.py RENDER ASSETS DATA [--all] [--floor RENDERED ENCODED]      RENDER: the program built from tests/oracle/render.c

    rendering   models/smollm2's template over the data set, one thread each, in CPU time; jinja2 gets the compiled template
                (jinja2) or is called as apply_chat_template calls it (transformers)
    rows        lines of JSON to ids and mask on all cores, in wall time; datasets.map runs apply_chat_template(tokenize=True)
    --all       rendering with every template of the assets, 300 rows each
    --floor     fails if the ratio to jinja2, or the ratio to datasets.map, is below these

Both sides alternate, and the ratio is the median over the rounds.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import figures

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")


def hone(options, lines, mode, path, seconds):
    run = subprocess.run([options.render, mode, path, str(seconds)], input=lines, stdout=subprocess.PIPE, check=True, text=True, encoding="utf-8")
    return json.loads(run.stdout)


def jinja2_rate(template, conversations, seconds):
    """Bytes per second of CPU time."""
    size, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for messages in conversations:
            size += len(template.render(messages=messages, tools=None, documents=None, add_generation_prompt=False, bos_token="<s>").encode("utf-8"))
    return size / (time.process_time() - start)


def transformers_rate(source, conversations, seconds):
    from transformers.utils.chat_template_utils import render_jinja_template
    size, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for messages in conversations:
            size += len(render_jinja_template([messages], chat_template=source, bos_token="<s>")[0][0].encode("utf-8"))
    return size / (time.process_time() - start)


def rendering(options, path, lines, seconds, turns):
    """(hone, jinja2, transformers) in MB/s and the two ratios; None where the template refuses a row."""
    from transformers.utils.chat_template_utils import _compile_jinja_template
    source = open(path, encoding="utf-8").read()
    template = _compile_jinja_template(source)
    conversations = [json.loads(line)["messages"] for line in lines]
    text = "".join(lines)
    rows = []
    for _ in range(turns):
        own = hone(options, text, "--time-template", path, seconds)
        rows.append((own["bytes"] / own["cpu"], jinja2_rate(template, conversations, seconds), transformers_rate(source, conversations, seconds)))
    rates = [statistics.median(column) / 1e6 for column in zip(*rows)]
    return (*rates, statistics.median(a / b for a, b, _ in rows), statistics.median(a / c for a, _, c in rows))


def all_templates(options, lines):
    ratios = {}
    for path in sorted(glob.glob(os.path.join(options.assets, "templates", "*.jinja"))):
        try:
            ratios[os.path.basename(path)] = rendering(options, path, lines, 0.1, 3)[3]
        except Exception:
            continue
    ranked = sorted(ratios, key=ratios.get)
    print(f"{len(ratios)} templates, times jinja2: min {ratios[ranked[0]]:.1f} ({ranked[0]}), median {statistics.median(ratios.values()):.1f}, "
          f"max {ratios[ranked[-1]]:.1f} ({ranked[-1]})")


def encoding(options, model, path, turns):
    import datasets
    from transformers import AutoTokenizer
    datasets.disable_progress_bars()
    datasets.disable_caching()
    tokenizer = AutoTokenizer.from_pretrained(model)
    lines = open(path, encoding="utf-8").read()
    data = datasets.Dataset.from_list([json.loads(line) for line in lines.splitlines()])
    rates = []
    for _ in range(turns):
        own = hone(options, lines, "--time-rows", model, 2)
        start = time.monotonic()
        data.map(lambda row: tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True))
        rates.append((own["rows"] / own["seconds"], len(data) / (time.monotonic() - start)))
    return (*[statistics.median(column) for column in zip(*rates)], statistics.median(a / b for a, b in rates))


def main():
    parser = argparse.ArgumentParser()
    for name in ("render", "assets", "data"):
        parser.add_argument(name)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--floor", nargs=2, type=float, default=(0, 0))
    options = parser.parse_args()
    model, path = os.path.join(options.assets, "models", "smollm2"), os.path.join(options.data, "train.jsonl")
    lines = open(path, encoding="utf-8").readlines()
    own, bare, wrapped, ratio, against = rendering(options, os.path.join(model, "chat_template.jinja"), lines, 0.5, 5)
    print(f"rendering: hone {own:.1f} MB/s, jinja2 {bare:.1f} MB/s ({ratio:.1f} times), transformers {wrapped:.1f} MB/s ({against:.1f} times)")
    if options.all:
        all_templates(options, lines[:300])
    rows, mapped, times = encoding(options, model, path, 3)
    print(f"rows: hone {rows:.0f} per second, datasets.map {mapped:.0f} per second ({times:.1f} times)")
    figures.record("Speed", "rendering, compared with jinja2", times=f"{ratio:.1f}")
    figures.record("Speed", "rows to tokens, compared with datasets.map", times=f"{times:.1f}")
    sys.exit(ratio < options.floor[0] or times < options.floor[1])


main()
