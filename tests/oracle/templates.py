"""Published chat templates against jinja2 as transformers sets it up.

    templates.py RENDER TEMPLATES [NAME]    RENDER: the program built from render.c; TEMPLATES: a directory of *.jinja

Every template is rendered over a handful of conversations; texts must be equal, and where jinja2 fails hone must fail too.
The message that each byte is said to come from is checked through marks: the texts of message i hold a character that no
other message has, and wherever it comes out it must lie in a span of message i.
"""
import glob
import json
import os
import subprocess
import sys

from transformers.utils.chat_template_utils import _alias_reasoning_fields, _compile_jinja_template

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"later\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "The city"}, "days": {"type": "integer", "enum": [1, 2]},
                                     "where": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "exact": True, "near": 1.5}}}
CALL_TEXT = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'}}


def tools_chat(call, response):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Zürich?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": response},
            {"role": "assistant", "content": "It rains."}, {"role": "user", "content": "Thanks"}]


CONVERSATIONS = {
    "short": ([{"role": "user", "content": "  Hello, <b>world</b> & 'all' \"of\" it!\n "}, {"role": "assistant", "content": "Hi — 你好 \n"}], None, False),
    "prompt": ([{"role": "system", "content": "You are terse."}, {"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"},
                {"role": "user", "content": "Two?"}], None, True),
    "thought": ([{"role": "user", "content": "One?"}, {"role": "assistant", "content": "<think>\nhm, one\n</think>\n\n1"}, {"role": "user", "content": "Two?"},
                 {"role": "assistant", "content": "2", "reasoning_content": "one and one"}], None, False),
    "tools": (tools_chat(CALL, "rain"), [TOOL], True),
    "tools_text": (tools_chat(CALL_TEXT, '{"sky": "rain"}'), [TOOL], False),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "text", "text": "And that?"}]},
               {"role": "assistant", "content": [{"type": "text", "text": "A test."}]}], None, False),
}


def marked(value, mark, key=""):
    if isinstance(value, dict):
        return {k: marked(v, mark, k) for k, v in value.items()}
    if isinstance(value, list):
        return [marked(v, mark, key) for v in value]
    known = key in ("content", "text", "reasoning_content", "city") and isinstance(value, str) and len(value) > 1
    return value[:-1] + mark + value[-1:] if known else value


def marks_lie_right(text, spans):
    data = text.encode("utf-8")
    if [begin for begin, _, _ in spans] + [len(data)] != [0] + [end for _, end, _ in spans] and spans:
        return False
    return all(not 0xE000 <= ord(c) < 0xE100 or ord(c) - 0xE000 == message
               for begin, end, message in spans for c in data[begin:end].decode("utf-8", "replace"))


def context(name):
    messages, tools, prompt = CONVERSATIONS[name]
    messages = [marked(message, chr(0xE000 + i)) for i, message in enumerate(messages)]
    return {"messages": _alias_reasoning_fields(messages), "tools": tools, "documents": None, "add_generation_prompt": prompt,
            "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def main():
    render, folder = sys.argv[1:3]
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    parsed = same = total = whole = fails = 0
    paths = [path for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))) if only in path]
    for path in paths:
        lines = "".join(json.dumps(context(name)) + "\n" for name in CONVERSATIONS)
        run = subprocess.run([render, "--template", path], input=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")
        title = os.path.basename(path)
        total += len(CONVERSATIONS)
        if run.returncode:
            print(f"{title}: {run.stderr.strip()}")
            continue
        parsed += 1
        good = 0
        for name, line in zip(CONVERSATIONS, run.stdout.split("\n")):
            got = json.loads(line)
            try:
                want = _compile_jinja_template(open(path, encoding="utf-8").read()).render(**context(name))
            except Exception as error:
                want = None
                reason = f"{type(error).__name__}: {error}"
            if want is None and "error" in got:
                good += 1
                fails += 1
                if only:
                    print(f"{title} {name}: both fail: {got['error']} | {reason}")
            elif want is None:
                print(f"{title} {name}: jinja2 fails ({reason}), hone does not")
            elif "error" in got:
                print(f"{title} {name}: hone fails: {got['error']}")
            elif got["text"] != want:
                at = next((i for i, (a, b) in enumerate(zip(got["text"], want)) if a != b), min(len(got["text"]), len(want)))
                print(f"{title} {name}: differs at {at}: {got['text'][max(0, at - 30):at + 40]!r} not {want[max(0, at - 30):at + 40]!r}")
            elif not marks_lie_right(got["text"], got["spans"]):
                print(f"{title} {name}: a byte is said to come from another message")
            else:
                good += 1
        same += good
        whole += good == len(CONVERSATIONS)
    print(f"{parsed} of {len(paths)} templates parse, {whole} are right in all conversations, {same} of {total} renderings are right ({fails} of them failures on both sides)")
    sys.exit(same != total)


main()
