"""OpenAI's rows through published chat templates: what transformers renders of the same conversation in the form that a template takes.

    openai.py ROWS TEMPLATES [NAME]         ROWS: the program built from rows.c; TEMPLATES: a directory of *.jinja

In these rows the arguments of a call are a JSON string, a call has no content, texts are lists of parts, and there are several
calls in a message, functions, refusals and developers. Templates differ in what they take of that, and print nonsense of the rest: a string in a string, the repr
of a list. Every way to write a row is rendered by jinja2, as transformers sets it up; hone's text must be one of those that make
sense, and hone may refuse a row only where none does.
"""
import glob
import itertools
import json
import os
import subprocess
import sys
import tempfile

from conversations import ENVIRONMENT
from masks import Template, find_ends, render, write_model

ARGUMENTS, SECOND = {"c": "Rome"}, {"c": "Oslo"}
FUNCTION = {"name": "w", "description": "d", "parameters": {"type": "object", "properties": {"c": {"type": "string", "description": "c"}}, "required": ["c"]}}
TOOLS = [{"type": "function", "function": FUNCTION}]
USER, DONE = {"role": "user", "content": "asked"}, {"role": "assistant", "content": "cold"}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "w", "content": "nine"}
SECOND_RESULT = {**RESULT, "tool_call_id": "call00002", "content": "five"}


def called(arguments, **content):
    return {"role": "assistant", **content, "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "w", "arguments": arguments}}]}


def called_twice(*two, **content):
    """Mistral's templates want ids of nine characters."""
    return {"role": "assistant", **content, "tool_calls": [{"id": f"call0000{i}", "type": "function", "function": {"name": "w", "arguments": arguments}}
                                                           for i, arguments in enumerate(two, 1)]}


def functions(arguments, **content):
    return {"role": "assistant", **content, "tool_calls": [{"type": "function", "function": {"name": "w", "arguments": arguments}}]}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


TEXT = json.dumps(ARGUMENTS)
WAYS = list(itertools.product((ARGUMENTS, TEXT), ({}, {"content": ""}, {"content": None})))
SECOND_TEXT = json.dumps(SECOND)
TWO_WAYS = list(itertools.product(((ARGUMENTS, SECOND), (TEXT, SECOND_TEXT)), ({}, {"content": ""}, {"content": None})))
# name -> the row, the ways to write its messages, its tools, what must be in its text
ROWS = {
    "a call": ({"messages": [USER, called(TEXT), RESULT, DONE], "tools": TOOLS, "parallel_tool_calls": False},
               [[USER, called(arguments, **content), RESULT, DONE] for arguments, content in WAYS], TOOLS, ("Rome", "nine", "cold")),
    "a call of null": ({"messages": [USER, called(TEXT, content=None, refusal=None), RESULT, DONE], "tools": TOOLS},
                       [[USER, called(arguments, **content), RESULT, DONE] for arguments, content in WAYS], TOOLS, ("Rome", "nine", "cold")),
    "two calls": ({"messages": [USER, called_twice(TEXT, SECOND_TEXT), RESULT, SECOND_RESULT, DONE], "tools": TOOLS},
                  [[USER, called_twice(*two, **content), RESULT, SECOND_RESULT, DONE] for two, content in TWO_WAYS], TOOLS,
                  ("Rome", "Oslo", "nine", "five", "cold")),
    "no calls": ({"messages": [USER, {**DONE, "tool_calls": []}]}, [[USER, DONE]], None, ("asked", "cold")),
    "a call as an object": ({"messages": [USER, called(ARGUMENTS), RESULT, DONE], "tools": TOOLS},
                            [[USER, called(arguments, **content), RESULT, DONE] for arguments, content in WAYS], TOOLS, ("Rome", "nine", "cold")),
    "functions": ({"messages": [USER, {"role": "assistant", "function_call": {"name": "w", "arguments": TEXT}}], "functions": [FUNCTION]},
                  [[USER, functions(arguments, **content)] for arguments, content in WAYS], TOOLS, ("Rome",)),
    "parts": ({"messages": [{"role": "user", "content": parts("asked", "twice")}, {"role": "assistant", "content": parts("cold")}]},
              [[{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
               for user in (parts("asked", "twice"), "asked\ntwice") for answer in (parts("cold"), "cold")], None, ("asked", "twice", "cold")),
    "a refusal": ({"messages": [USER, {"role": "assistant", "content": None, "refusal": "cold"}]}, [[USER, DONE]], None, ("cold",)),
    "a developer": ({"messages": [{"role": "developer", "content": "brief"}, USER, DONE]},
                    [[{"role": role, "content": "brief"}, USER, DONE] for role in ("developer", "system")], None, ("cold",)),
    "a preference": ({"input": {"messages": [USER], "tools": [], "parallel_tool_calls": True}, "preferred_output": [DONE],
                      "non_preferred_output": [{"role": "assistant", "content": "warm"}]}, [[USER, DONE]], None, ("asked", "cold")),
}
NONSENSE = (b'\\"c\\"', b"{'c'", b"'type'", b'"type": "text"', b"None")


def makes_sense(text, shown):
    return text is not None and all(word.encode() in text for word in shown) and not any(word in text for word in NONSENSE)


def text_of(result, folder):
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        added = {token["id"]: token["content"].encode() for token in json.load(file)["added_tokens"]}
    return b"".join(added[i] if i >= 256 else bytes([i]) for i in result["ids"])


def encode(tool, folder):
    path = os.path.join(folder, "rows.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row, *_ in ROWS.values())
    run = subprocess.run([tool, folder, path], stdout=subprocess.PIPE, check=True, text=True, encoding="utf-8", env={**os.environ, **ENVIRONMENT})
    return [json.loads(line) for line in run.stdout.splitlines()]


def check(tool, path, folder):
    """What is wrong of each row, None where nothing is; and whether it was refused."""
    template = Template(path)
    with open(path, encoding="utf-8") as file:
        write_model(folder, file.read(), find_ends(template.jinja))
    for (name, (_, ways, tools, shown)), got in zip(ROWS.items(), encode(tool, folder), strict=True):
        good = [text for way in ways for text in [render(template.jinja, way, tools)] if makes_sense(text, shown)]
        if "error" in got:
            yield name, f"refused: {got['error']}, but jinja2 gives {good[0]!r}" if good else None, True
        else:
            text = text_of(got, folder)
            wanted = good[:1] if name == "parts" else good                 # which are as they were, if the template takes them
            yield name, None if text in wanted else f"{text!r} is none of {len(good)}" + (f", as {good[0]!r}" if good else ""), False


def main():
    tool, templates = sys.argv[1:3]
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    paths = [path for path in sorted(glob.glob(os.path.join(templates, "*.jinja"))) if only in path]
    wrong = rows = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            for name, what, no in check(tool, path, folder):
                rows += 1
                refused += no
                wrong += what is not None
                if what:
                    print(f"{os.path.basename(path)}, {name}: {what}")
    print(f"{len(paths)} templates x {len(ROWS)} rows of OpenAI: {wrong} wrong, {refused} refused where no way makes sense")
    sys.exit(bool(wrong) or not paths or refused > rows // 5)


main()
