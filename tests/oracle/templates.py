"""Published chat templates against jinja2 as transformers sets it up.

    templates.py RENDER TEMPLATES [NAME]    RENDER: the program built from render.c; TEMPLATES: a directory of *.jinja

Every template is rendered over every conversation, with and without the prompt of the assistant's turn; texts must be equal,
and where jinja2 fails hone must fail too. The message that each byte is said to come from is checked through marks: the texts
of message i hold a character that no other message has, and wherever it comes out it must lie in a span of message i.
"""
import glob
import json
import os
import subprocess
import sys

from conversations import CONVERSATIONS, ENVIRONMENT, compiled, context


def marked(value, mark, key=""):
    if isinstance(value, dict):
        return {k: marked(v, mark, k) for k, v in value.items()}
    if isinstance(value, list):
        return [marked(v, mark, key) for v in value]
    known = key in ("content", "text", "reasoning_content", "thinking", "city") and isinstance(value, str) and len(value) > 1
    return value[:-1] + mark + value[-1:] if known else value


def marks_lie_right(text, spans):
    data = text.encode("utf-8")
    if [span[0] for span in spans] + [len(data)] != [0] + [span[1] for span in spans] and spans:
        return False
    return all(not 0xE000 <= ord(c) < 0xE100 or ord(c) - 0xE000 == span[2]
               for span in spans for c in data[span[0]:span[1]].decode("utf-8", "replace"))


def cases():
    for name, (messages, tools) in CONVERSATIONS.items():
        messages = [marked(message, chr(0xE000 + i)) for i, message in enumerate(messages)]
        for prompt in (False, True):
            yield f"{name}{' with prompt' if prompt else ''}", context(messages, tools, prompt)


def verdict(template, variables, got):
    """None where both sides agree, else what is wrong; and whether both failed."""
    try:
        want = template.render(**variables)
    except Exception as error:
        return (None if "error" in got else f"jinja2 fails ({type(error).__name__}: {error}), hone does not"), True
    if "error" in got:
        return f"hone fails: {got['error']}", False
    if got["text"] != want:
        at = next((i for i, (a, b) in enumerate(zip(got["text"], want)) if a != b), min(len(got["text"]), len(want)))
        return f"differs at {at}: {got['text'][max(0, at - 30):at + 40]!r} not {want[max(0, at - 30):at + 40]!r}", False
    return (None if marks_lie_right(got["text"], got["spans"]) else "a byte is said to come from another message"), False


def main():
    render, folder = sys.argv[1:3]
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    parsed = same = total = whole = fails = 0
    paths = [path for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))) if only in path]
    conversations = list(cases())
    lines = "".join(json.dumps(variables) + "\n" for _, variables in conversations)
    for path in paths:
        run = subprocess.run([render, "--template", path], input=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             encoding="utf-8", env={**os.environ, **ENVIRONMENT})
        title = os.path.basename(path)
        total += len(conversations)
        if run.returncode:
            print(f"{title}: {run.stderr.strip()}")
            continue
        parsed += 1
        good = 0
        template = compiled(path)
        for (name, variables), line in zip(conversations, run.stdout.split("\n")):
            wrong, failed = verdict(template, variables, json.loads(line))
            if wrong:
                print(f"{title} {name}: {wrong}")
            good += not wrong
            fails += failed and not wrong
        same += good
        whole += good == len(conversations)
    print(f"{parsed} of {len(paths)} templates parse, {whole} are right in all {len(CONVERSATIONS)} conversations, with and without prompt; "
          f"{same} of {total} renderings are right ({fails} of them failures on both sides)")
    sys.exit(same != total or not paths)


main()
