"""Loss masks of published chat templates, by rules that know nothing of how they are made.

    masks.py RENDER TEMPLATES [NAME]        RENDER: the program built from render.c; TEMPLATES: a directory of *.jinja

Every template becomes a model's directory with a tokenizer that has one token for a byte and one for each marker of the template.
hone encodes every conversation; jinja2, as transformers sets it up, says which bytes must be trained and which must not:

    own     bytes that change when an assistant's content, reasoning or arguments change are trained
    others  bytes that change when another message's content changes are not
    prompt  where the text up to a turn is what the template gives when asked for that answer, training begins exactly after it
    end     the token that ends the turn is trained, and nothing between it and the next turn
    blocks  of a template with {% generation %}, exactly the bytes that transformers' assistant mask has
    typed   no special token results from what a user, a system prompt or a tool wrote

What cannot be compared is counted by its reason.
"""
import collections
import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from conversations import CONVERSATIONS, ENVIRONMENT, TYPED, compiled, context
from transformers.utils.chat_template_utils import _render_with_assistant_indices

MARKER = re.compile(r"<\|?[^<>\s{}'\"%|+~()]{1,40}\|?>|<｜[^<>\s{}'\"%]{1,40}｜>|\[/?[A-Z_]{3,30}\]|\]<\]|\[>\[")
KEPT = re.compile(r"<[^>]*>|\[[^\]]*\]|\{\{.*?\}\}|\{%.*?%\}")
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
# What ends generation where that is not the marker after an answer, as the models' own generation_config.json has it.
ENDS = {"GLM-4": ["<|user|>", "<|observation|>"], "openai-gpt-oss": ["<|return|>", "<|call|>", "<|end|>"],
        "google-gemma-4": ["<turn|>", "<|tool_response>"], "upstage-Solar": ["<|end|>", "<|calls|>"], "Kimi-K3": ["<|end_of_msg|>"],
        "MiniMax-M2": ["[e~["], "MiniMax-M3": ["[e~["]}
# Markers that tokenizers have as added tokens, if at all, but not as special ones.
ORDINARY = re.compile(r"</?(?!s>|eos>|bos>|start_of_turn>|end_of_turn>)[a-z_-]*(=[^>]*)?>|\[[A-Z_]*RESULT[A-Z_]*\]")


def byte_letters():
    """The letter that stands for each byte in byte-level vocabularies."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {}, 256
    for byte in range(256):
        letters[byte] = chr(byte) if byte in keep else chr(more)
        more += byte not in keep
    return letters


def write_model(folder, source, ends):
    """A tokenizer of bytes and markers. Returns the markers that are special."""
    markers = sorted({*MARKER.findall(source), *SPECIALS.values(), *MARKER.findall(TYPED), *ends})
    vocabulary = {letter: byte for byte, letter in byte_letters().items()}
    special = [marker for marker in markers if not ORDINARY.fullmatch(marker) or marker in ends]
    added = [{"id": 256 + i, "content": marker, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": marker in special} for i, marker in enumerate(markers)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
                 "post_processor": None, "decoder": level, "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                                                                     "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                                                                     "ignore_merges": False, "vocab": vocabulary, "merges": []}}
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": SPECIALS, "generation_config.json": {"eos_token_id": [256 + markers.index(e) for e in ends]}}
    for name, tree in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(tree, file)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(source)
    return special


def shifted(text, typed=False):
    """The same text with other letters; the shape of JSON stays, and so does markup that is not typed by a user."""
    if text[:1] in "{[" and text[-1:] in "}]":
        try:
            return json.dumps(shifted_values(json.loads(text)), ensure_ascii=False)
        except ValueError:
            pass
    parts, at = [], 0
    for kept in [] if typed else KEPT.finditer(text):
        parts += [text[at:kept.start()].translate(SHIFT), kept.group()]
        at = kept.end()
    return "".join(parts) + text[at:].translate(SHIFT)


def shifted_values(value):
    if isinstance(value, dict):
        return {key: shifted_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shifted_values(item) for item in value]
    return value.translate(SHIFT) if isinstance(value, str) else value


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHIFT = str.maketrans(LETTERS + LETTERS.upper() + "0123456789", LETTERS[1:] + "a" + LETTERS[1:].upper() + "A" + "1234567890")


def changes(message):
    """(what, message with that changed) for all of a message that can be changed."""
    content, typed = message.get("content"), message["role"] != "assistant"
    if isinstance(content, str) and content:
        yield "content", {**message, "content": shifted(content, typed)}
    elif isinstance(content, list):
        yield "content", {**message, "content": [{**part, "text": shifted(part["text"], typed)} for part in content]}
    for key in ("reasoning_content", "thinking", "reasoning"):
        if message.get(key):
            yield "thoughts", {**message, key: shifted(message[key])}
    for i, call in enumerate(message.get("tool_calls") or []):
        other = copy.deepcopy(message)
        arguments = call["function"]["arguments"]
        other["tool_calls"][i]["function"]["arguments"] = shifted(arguments) if isinstance(arguments, str) else shifted_values(arguments)
        yield "arguments", other


def render(template, messages, tools, prompt=False):
    try:
        return template.render(**context(messages, tools, prompt, SPECIALS)).encode("utf-8")
    except Exception:
        return None


def changed_bytes(template, conversation, i, other, text):
    """Positions that differ when message i is replaced, or why they cannot be told."""
    messages, tools = conversation
    now = render(template, messages[:i] + [other] + messages[i + 1:], tools)
    if now is None:
        return "the changed row is refused"
    if len(now) != len(text):
        return "the template rewrites the content"
    return [at for at, (a, b) in enumerate(zip(text, now)) if a != b]


class Checker:
    def __init__(self, title, template, special, ends):
        self.title, self.template = title, template
        self.special, self.ends = ([marker.encode("utf-8") for marker in markers] for markers in (special, ends))
        self.blocks = "endgeneration" in open(template.path, encoding="utf-8").read()
        self.counts, self.reasons, self.wrong = collections.Counter(), collections.Counter(), []

    def fail(self, name, rule, what):
        self.wrong.append(f"{self.title} {name}: {rule}: {what}")

    def check(self, name, conversation, got):
        messages, tools = conversation
        text = render(self.template.jinja, messages, tools)
        if text is None or "error" in got:
            if ("error" in got) != (text is None):
                self.fail(name, "render", got.get("error", "jinja2 refuses, hone does not"))
            return
        trained = bytearray(len(text))
        for begin, end in got["trained"]:
            trained[begin:end] = b"\1" * (end - begin)
        if self.blocks:
            return self.check_blocks(name, conversation, trained)
        for i, message in enumerate(messages):
            last = -1
            for what, other in changes(message):
                where = changed_bytes(self.template.jinja, conversation, i, other, text)
                if isinstance(where, str) or not where:
                    self.reasons[f"{message['role']} {what}: {where or 'not in the text'}"] += 1
                    continue
                own = message["role"] == "assistant"
                self.counts["own" if own else "others"] += len(where)
                bad = [at for at in where if trained[at] != own]
                if bad:
                    self.fail(name, "own" if own else "others", f"message {i}, {what}: {text[max(0, bad[0] - 20):bad[0] + 20]!r}")
                last = max(last, where[-1])
            if message["role"] == "assistant":
                self.check_prompt(name, conversation, i, text, trained)
                self.check_end(name, conversation, i, text, trained, last)

    def check_blocks(self, name, conversation, trained):
        messages, tools = conversation
        variables = context(messages, tools, False, SPECIALS)
        text, ranges = _render_with_assistant_indices(self.template.jinja, **variables)
        want = bytearray(len(text.encode("utf-8")))
        for begin, end in ranges:
            a, b = (len(text[:at].encode("utf-8")) for at in (begin, end))
            want[a:b] = b"\1" * (b - a)
        self.counts["blocks"] += sum(want)
        if want != trained:
            self.fail(name, "blocks", "other bytes than transformers' assistant mask")

    def check_prompt(self, name, conversation, i, text, trained):
        messages, tools = conversation
        if i and messages[i - 1]["role"] == "assistant":
            self.reasons["prompt: two answers in a row"] += 1
            return
        before = render(self.template.jinja, messages[:i], tools, True) if i else None
        if not before or not text.startswith(before) or len(before) >= len(text):
            self.reasons["prompt: the text so far is another when an answer is asked for"] += 1
            return
        self.counts["prompt"] += 1
        if trained[len(before) - 1] or not trained[len(before)]:
            at = len(before)
            self.fail(name, "prompt", f"message {i}: {text[max(0, at - 30):at]!r} | {text[at:at + 30]!r} "
                                      f"trained {bytes(trained[max(0, at - 30):at + 30]).hex()}")

    def check_end(self, name, conversation, i, text, trained, last):
        messages, tools = conversation
        if last < 0:
            self.reasons["end: the turn has no bytes that change"] += 1
            return
        following = [at for j in range(i + 1, len(messages)) for _, other in changes(messages[j])
                     for where in [changed_bytes(self.template.jinja, conversation, j, other, text)] if not isinstance(where, str)
                     for at in where if at > last]
        behind = text[last + 1:min(following, default=len(text))]
        ends = [(at, end) for end in self.ends for at in [behind.find(end)] if at >= 0]
        if not ends:
            markers = [(at, marker) for marker in self.special for at in [behind.find(marker)] if at >= 0]
            if not markers:
                self.reasons["end: the template ends turns with plain text"] += 1
                return
            if self.title.startswith("GLM-4"):
                self.reasons["end: the header of the next turn is the end, but for this role"] += 1
                return
            at = min(markers)[0] + last + 1
            self.counts["end"] += 1
            if trained[last + 1:at + 1] != b"\1" * (at - last) and at + 1 < len(text):
                self.fail(name, "end", f"message {i}: no marker after it: {text[last:at + 20]!r}")
            return
        at, end = min(ends)
        at += last + 1
        stop = at + len(end)
        if trained[last + 1:stop] != b"\1" * (stop - last - 1):
            self.fail(name, "end", f"message {i}: {text[last:stop]!r} trained {bytes(trained[last:stop]).hex()}")
        elif trained[stop:stop + 1] == b"\1" and not (following and min(following) == stop) and messages[i + 1:i + 2] != []:
            self.fail(name, "end", f"message {i}: trained after the end: {text[at:stop + 20]!r}")
        self.counts["end"] += 1


def find_ends(template):
    """What ends an assistant's turn: the first marker after its text; also for tool calls."""
    ends = []
    for name in ("short", "tools"):
        messages, tools = CONVERSATIONS[name]
        for i, message in enumerate(messages):
            text = render(template, messages, tools)
            if message["role"] != "assistant" or text is None:
                continue
            for what, other in changes(message):
                where = changed_bytes(template, (messages, tools), i, other, text)
                if isinstance(where, str) or not where:
                    continue
                behind = text[where[-1] + 1:].decode("utf-8", "replace")
                specials = [m for m in MARKER.finditer(behind) if not ORDINARY.fullmatch(m.group())]
                if what == "content" and specials and specials[0].group() not in ends:
                    ends.append(specials[0].group())
    return ends or ["</s>"]


def special_ids(result):
    return [i for i in result["ids"] if i >= 256]


class Template:
    def __init__(self, path):
        self.path, self.jinja = path, compiled(path)


def run_template(render_tool, path, folder):
    template = Template(path)
    with open(path, encoding="utf-8") as file:
        source = file.read()
    known = [ends for title, ends in ENDS.items() if os.path.basename(path).startswith(title)]
    ends = known[0] if known else find_ends(template.jinja)
    special = write_model(folder, source, ends)
    rows = [{"messages": messages, "tools": tools} for messages, tools in CONVERSATIONS.values()]
    typed, untyped = (json.loads(json.dumps(CONVERSATIONS["typed"][0])) for _ in range(2))
    for message in untyped:
        message["content"] = message["content"].replace(TYPED, TYPED.translate(str.maketrans("<>[]|{}%", "()()!()!")))
    rows += [{"messages": typed}, {"messages": untyped}]
    run = subprocess.run([render_tool, folder], input="".join(json.dumps(row) + "\n" for row in rows), stdout=subprocess.PIPE, check=True, text=True,
                         encoding="utf-8", env={**os.environ, **ENVIRONMENT})
    results = [json.loads(line) for line in run.stdout.split("\n")[:-1]]
    checker = Checker(os.path.basename(path), template, special, ends)
    checker.counts["fast"] = sum(result.get("fast", False) for result in results)
    checker.counts["rows"] = sum("ids" in result for result in results)
    for (name, conversation), got in zip(CONVERSATIONS.items(), results):
        checker.check(name, conversation, got)
    if "ids" in results[-1] and "ids" in results[-2]:
        ordinary = {i for i in range(256, 4096)} - set(checker_ids(folder))
        a, b = ([i for i in special_ids(result) if i not in ordinary] for result in results[-2:])
        checker.counts["typed"] += len(a)
        if a != b:
            checker.fail("typed", "typed", "a special token was made of typed text")
    return checker


def checker_ids(folder):
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        return [token["id"] for token in json.load(file)["added_tokens"] if token["special"]]


def main():
    render_tool, templates = sys.argv[1:3]
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    paths = [path for path in sorted(glob.glob(os.path.join(templates, "*.jinja"))) if only in path]
    counts, reasons, wrong = collections.Counter(), collections.Counter(), []
    where = collections.defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            checker = run_template(render_tool, path, folder)
            counts += checker.counts
            reasons += checker.reasons
            wrong += checker.wrong
            for reason in checker.reasons:
                where[reason].add(checker.title.removesuffix(".jinja"))
    print(*wrong, sep="\n" if wrong else "")
    for reason, count in sorted(reasons.items()):
        names = sorted(where[reason])
        print(f"not compared: {reason}: {count} times in {len(names)} templates" + (f" ({', '.join(names)})" if len(names) <= 12 else ""))
    print(f"{len(paths)} templates x {len(CONVERSATIONS)} conversations: {counts['own']} own bytes, {counts['others']} bytes of others, {counts['prompt']} prompts, "
          f"{counts['end']} ends, {counts['blocks']} bytes in blocks, {counts['typed']} special tokens next to typed ones: {len(wrong)} wrong; "
          f"{counts['fast']} of {counts['rows']} rows encoded without a tree too, with the same result")
    sys.exit(bool(wrong) or not all(counts[name] for name in ("own", "others", "prompt", "end", "typed")))


if __name__ == "__main__":
    main()
