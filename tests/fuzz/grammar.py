"""Inputs that a grammar writes, for targets whose language mutations are slow to learn: templates, data files and chats. Where the
language is JSON of certain keys, the grammar is that of the corpus: the trees of its inputs with values and keys changed.

Each is mostly right and wrong somewhere, so that it gets beyond the first check. tests/fuzz/run --grammar keeps those that reach
new code; they are mutated like others afterwards.
"""
import functools
import gzip
import json
import pathlib

TEXTS = ["", "Hi", " x ", "\n", "<s>", "</s>", "a</s>\nb", "<|im_end|>", "<|im_start|>assistant\n", "assistant\n", "<think>a</think>b",
         "\u00e9\u00df\u4e2d\U0001f600", "\u0301", "don't I'LL", "1234567 12", "\t\t  x", "\u00a0\u3000\u2028\u1680\u200b\u00ad\ue000\u202e",
         "]>[<", "{{ x }}", "\0", "\x1b[1m", "x" * 300, "ab " * 100, "\ufeff", "\ufffd", '{"a":1}', "[1]"]
SCALARS = [None, True, False, 0, 1, -1, 1.5, 1e300, -0.0, 12345678901234567890, 9223372036854775807, -9223372036854775808, "1", "x"]
ROLES = ["user", "assistant", "system", "tool", "developer", "model", "human", "gpt", "function", "Assistant", "ipython", ""]
DAMAGE = ["", "}", "{", "[", "]", ",", '"', "'", "1e999", "\\u0000", "\\ud800", "\\u003c", "1.5e-400", "00", "-", "1234567890123456789012.5e3"]

TEMPLATES = [
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% for m in messages %}{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}{{ m.content|trim }}{{ eos_token }}{% endif %}"
    "{% endfor %}",
    "{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
    "{{ c.function.arguments|tojson }}{% endfor %}<|im_end|>{% endfor %}",
    "{% for m in messages %}{{ m.content if loop.last else m.content.split('</think>')[-1] }}<|im_end|>{% endfor %}",
    "{% for m in messages|reverse %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "{{ messages|tojson }}", "{{ messages[0].content }}",
    "{{ (messages|map(attribute='content')|join(' '))|upper }}", "{{ raise_exception('no') }}", "{{ strftime_now('%Y') }}",
    "{% generation %}x{% endgeneration %}", "{% for m in messages %}{{ m.content[:3] }}{{ m.content[3:] }}{{ m.content }}{% endfor %}", ""]

VALUES = """1 0 -1 2.5 1e308 '' 'a' '\u00e9\u00df' '<b>&' 'x'*40 'a,b' ' x ' '12' '%s_%d' '{}_{a}' none true false [] [3,1,2] ['b','a'] [[1,2],[3,4]]
    [{'k':1},{'k':2}] {} {'a':1,'b':[2]} () (1,) range(5) range messages messages[0] messages[0].content messages[-1] tools x n r ns m loop caller
    bos_token namespace(a=1) {'a':1}.items() {'a':1}.keys() 'a'.upper ('A'|e) 9223372036854775807 -9223372036854775808""".split()
FILTERS = """upper lower title capitalize trim length count list join join(',') first last sort sort(reverse=true) sort(attribute='k') reverse
    unique sum sum(attribute='k') min max map('upper') map(attribute='k') map(attribute='k',default=0) select select('odd') reject('none')
    selectattr('k') selectattr('k','equalto',1) rejectattr('k','defined') tojson tojson(indent=2) tojson(sort_keys=true,ensure_ascii=true)
    tojson(separators=(',',':')) string int int(3) int(default=1,base=16) float float(0.5) abs round round(1) round(0,'ceil') round(1,'floor')
    default(1) default('x',true) escape safe replace('a','b') replace('a','b',1) indent indent(2,true) indent('_',first=true,blank=true) items
    dictsort dictsort(by='value') dictsort(reverse=true) batch(2) batch(2,0) groupby('k') wordcount truncate(3) center(10) format(1,2) attr('a')
    nosuch""".split()
METHODS = """upper() lower() title() capitalize() strip() strip('a') lstrip() rstrip('x') split() split(',') split(',',1) rsplit(',',1) rsplit()
    splitlines() splitlines(true) replace('a','b') replace('','-') startswith('a') endswith(('a','b')) find('a') rfind('a') index('a') count('a')
    join(['a','b']) join([1]) isalpha() isdigit() isalnum() isupper() islower() isspace() format(1,a=2) format(*[1,2]) format(**{'a':1}) items()
    keys() values() get('a') get('z',0) pop() append(1) copy() a k role content index0 previtem nextitem cycle(1,2) changed(1) first last length
    depth revindex partition('a') removeprefix('a') removesuffix('b') zfill(5) ljust(5) swapcase() __class__ nosuch()""".split()
TESTS = """defined undefined none true false string number integer float boolean mapping sequence iterable callable odd even divisibleby(2)
    equalto(1) sameas(none) upper lower escaped in([1,2]) lt(2) ge(1) ne(1) nosuch""".split()
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Writer:
    def __init__(self, rng):
        self.rng, self.one, self.chance = rng, rng.choice, lambda part: rng.random() < part

    def some(self, make, most):
        return [make() for _ in range(self.rng.randint(0, most))]

    def text(self, part=0.85):
        """A text, or now and then anything else."""
        return self.one(TEXTS) if self.chance(part) else self.value()

    def value(self, depth=0):
        if depth > 3 or self.chance(0.7):
            return self.one(SCALARS + TEXTS)
        if self.chance(0.5):
            return self.some(lambda: self.value(depth + 1), 3)
        keys = ["a", "name", "arguments", "content", "role", "type", "text", "id", "function", "value", "from"]
        return dict(self.some(lambda: (self.one(keys), self.value(depth + 1)), 3))

    # --- rows --------------------------------------------------------------------------------------------------------------

    def call(self):
        function = {"name": self.one(["f", "", self.value()]), "arguments": self.one([{"x": 1}, '{"x": 1}', "{", "[]", {}, self.value()])}
        return self.one([function, {"type": "function", "function": function}, {"id": self.value(), "function": function}, self.value()])

    def tool(self):
        parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
        return self.one([{"type": "function", "function": {"name": "f", "description": self.text(), "parameters": parameters}},
                         {"name": "f", "parameters": self.value()}, self.value()])

    def message(self, role):
        parts = self.some(lambda: {"type": self.one(["text", "image", ""]), "text": self.text()} if self.chance(0.8) else self.value(), 3)
        made = {"role": role, "content": self.one([self.text()] * 5 + [parts]), "tool_calls": self.one([self.some(self.call, 3), self.value()]),
                "train": self.one([True, False, self.value()])}
        made.update((key, self.value()) for key in ("name", "tool_call_id", "reasoning_content", "weight"))
        often = {"role": 0.97, "content": 0.95, "tool_calls": 0.12, "train": 0.12}
        return {key: made[key] for key in made if self.chance(often.get(key, 0.04))}

    def conversation(self):
        roles = ["system"] * self.chance(0.3) + ["user", "assistant"] * 9
        return [self.message(role if self.chance(0.9) else self.one(ROLES + [self.value()])) if self.chance(0.97) else self.value()
                for role in roles[:self.one([0, 1, 1, 2, 2, 2, 3, 4, 5, 18])]]

    def turn(self):
        who = self.one(["human", "gpt", "system", "tool", "observation", "function_call", "user", "bing", self.value()])
        return {self.one(["from", "role"]): who, self.one(["value", "content"]): self.text()}

    def row(self):
        either = lambda: self.one([self.text(), self.conversation(), self.value()])
        row = self.one([lambda: {"messages": self.conversation()}] * 4 + [
            lambda: {self.one(["conversations", "conversation"]): self.some(self.turn, 5)},
            lambda: {key: self.text() for key in ("instruction", "input", "output", "system", "history") if self.chance(0.75)},
            lambda: {"prompt": either(), self.one(["completion", "response", "answer"]): either()},
            lambda: {"prompt": either(), "chosen": either(), "rejected": either()}, lambda: {"chosen": either(), "rejected": either()},
            lambda: {"text": self.text()}, lambda: {self.one(["question", "content", "a"]): self.value(), self.one(["answer", "b"]): self.value()},
            lambda: {"": self.value()}])()
        if self.chance(0.12):
            row["tools"] = self.one([self.some(self.tool, 3), json.dumps([self.tool()]), self.value()])
        row.update((key, self.value()) for key in ("system", "id", "weight", "train") if self.chance(0.05))
        return row

    def json(self, value):
        text = json.dumps(value, ensure_ascii=self.chance(0.5), separators=self.one([(",", ":"), (", ", ": ")]))
        if self.chance(0.04):
            return text[:self.rng.randint(0, len(text))]
        return text.replace(self.one('{}[],:"e1'), self.one(DAMAGE), 1) if self.chance(0.04) else text

    def rows(self):
        """A data file."""
        rows = [self.json(self.row()) for _ in range(self.one([1, 1, 1, 1, 2, 3, 6]))]
        rows = rows[:1] * len(rows) if self.chance(0.3) else rows
        text = "\n".join(rows) + self.one(["\n", "", " "]) if self.chance(0.8) else "[" + self.one([",\n", ","]).join(rows) + self.one(["]", "]\n", ""])
        data = text.encode("utf-8", "surrogatepass")
        return self.one([lambda: data] * 20 + [lambda: b"\xef\xbb\xbf" + data, lambda: data.replace(b"\n", b"\r\n"), lambda: gzip.compress(data),
                                               lambda: gzip.compress(data) + self.one([b"x", gzip.compress(data)])])()

    # --- chats -------------------------------------------------------------------------------------------------------------

    def token(self):
        usual = ["<|im_start|>", "<|im_end|>"]
        return self.one(usual if self.chance(0.75) else ["<|endoftext|>", "", "x", None, 1, {"content": "<|im_end|>"}, {"content": 1}, usual])

    def chat_template(self):
        text = self.one([self.one(TEMPLATES), self.template(), self.one(TEMPLATES) + self.template()])
        other = self.one(TEMPLATES)
        return self.one([text] * 9 + [[{"name": "default", "template": text}, {"name": self.one(["tool_use", "default", 1]), "template": other}],
                                      {"default": text, "tool_use": other}, [{"template": text}], self.value()])

    def chat(self):
        """tokenizer_config.json, special_tokens_map.json, generation_config.json and a row."""
        added = {self.one(["0", "2", "49152", "-1", "x", "9" * 20]): self.one([{"content": self.one(["<|im_end|>", "<t>", ""]), "special": True},
                                                                               self.value()])}
        config = {"bos_token": self.token(), "eos_token": self.token(), "chat_template": self.chat_template(), "pad_token": self.token(),
                  "additional_special_tokens": self.one([self.some(self.token, 3), self.value()]), "added_tokens_decoder": self.one([added, self.value()])}
        config = {key: config[key] for i, key in enumerate(config) if self.chance(0.97 if i < 3 else 0.15)}
        tokens = {key: self.token() for key in ("bos_token", "eos_token", "pad_token") if self.chance(0.5)}
        ends = {"eos_token_id": self.one([0, 2, [0, 2], [], -1, 99999, "2", [None], [2] * 20, self.value()])}
        row = {"messages": self.conversation(), **({"tools": self.some(self.tool, 2)} if self.chance(0.25) else {})}
        parts = [self.json(config), self.json(tokens) if self.chance(0.4) else "", self.json(ends) if self.chance(0.4) else "",
                 self.json(row) if self.chance(0.9) else ""]
        return "\0".join(parts).rstrip("\0").encode("utf-8", "surrogatepass")

    # --- templates ---------------------------------------------------------------------------------------------------------

    def expression(self, depth=0):
        if depth > 3 or self.chance(0.22):
            return self.one(VALUES)
        a, b, c = (lambda: self.expression(depth + 1) for _ in range(3))
        return self.one([
            lambda: f"{a()}|{self.one(FILTERS)}", lambda: f"{a()}|{self.one(FILTERS)}", lambda: f"({a()}).{self.one(METHODS)}",
            lambda: f"({a()}).{self.one(METHODS)}", lambda: f"{a()} is {self.one(['', 'not '])}{self.one(TESTS)}",
            lambda: f"({a()} {self.one(OPERATORS)} {b()})", lambda: f"({a()} {self.one(OPERATORS)} {b()})",
            lambda: f"({a()} if {b()}{self.one(['', ' else ' + c()])})", lambda: f"{self.one(['-', '+', 'not '])}({a()})",
            lambda: f"({a()})[{self.one([b(), '0', '-1', '1:', ':2', '::2', '::-1', '-2:', f'{b()}:{c()}'])}]",
            lambda: f"[{a()}, {b()}]", lambda: f"({a()}, {b()})", lambda: f"{{{a()}: {b()}}}", lambda: f"{a()} < {b()} <= {c()}",
            lambda: f"{self.one(['m', 'range', 'dict', 'namespace', 'cycler', 'raise_exception', 'caller', 'loop'])}"
                    f"({self.one(['', a(), 'a=' + b(), '*' + c(), '**' + c()])})"])()

    def statement(self, depth=0):
        if depth > 2 or self.chance(0.4):
            return f"{{{{{self.one(['', '-'])} {self.expression()} {self.one(['', '-'])}}}}}"
        body, value = (lambda: self.statement(depth + 1)), self.expression
        inside = ["", "{{ loop.index }}{{ loop.previtem }}", "{{ loop(a) }}", "{% break %}", "{% continue %}", "{% set ns.a = loop %}"]
        return self.one([
            lambda: f"{{% set {self.one(['a', 'a, b', 'a, (b, x)', 'ns.a', 'm'])} = {value()} %}}",
            lambda: f"{{% set {self.one(['a', 'ns.a'])}{self.one(['', '|' + self.one(FILTERS)])} %}}{body()}{{% endset %}}",
            lambda: f"{{% for {self.one(['a', 'a, b'])} in {value()}{self.one(['', ' if ' + value(), ' recursive'])} %}}{body()}{self.one(inside)}"
                    f"{self.one(['', '{% else %}' + body()])}{{% endfor %}}",
            lambda: f"{{% if {value()} %}}{body()}{self.one(['', '{% elif ' + value() + ' %}' + body(), '{% else %}' + body()])}{{% endif %}}",
            lambda: f"{{% macro m({self.one(['', 'a', 'a, b=1', 'b, a=' + value()])}) %}}{body()}"
                    f"{self.one(['', '{{ caller() }}', '{{ varargs }}{{ kwargs }}'])}{{% endmacro %}}",
            lambda: f"{{% call{self.one(['', '(a)'])} m({self.one(['', value()])}) %}}{body()}{{% endcall %}}",
            lambda: f"{{% filter {self.one(FILTERS)} %}}{body()}{{% endfilter %}}",
            lambda: f"{{% with a = {value()} %}}{body()}{{% endwith %}}",
            lambda: f"{{% generation %}}{body()}{{% endgeneration %}}",
            lambda: self.one(["{# x #}", "{% raw %}{{ x }}{% endraw %}", " \n", "text", "{#- x -#}"])])()

    def template(self):
        text = "{% set ns = namespace(a=1) %}" * self.chance(0.3) + "".join(self.some(self.statement, 4))
        if self.chance(0.04):
            at = self.rng.randint(0, len(text))
            text = text[:at] + self.one(["", "{{", "%}", "}}", "'", "(", ")", "[", "{%", "#}", "|", "."]) + text[at + self.rng.randint(0, 2):]
        return text

    def jinja(self):
        """A template and, now and then, the context that it is rendered with."""
        context = {"messages": self.conversation(), "x": self.value()}
        return (self.template() + ("\0" + json.dumps(context) if self.chance(0.2) else "")).encode("utf-8", "surrogatepass")

    # --- like the corpus ---------------------------------------------------------------------------------------------------

    def bend(self, tree, part):
        """A tree with this part of its values changed, left out or there twice."""
        if self.chance(part):
            return self.one([self.value(), self.one(BENT), self.one(BENT)])
        if isinstance(tree, dict):
            keys = [key for key in tree if not self.chance(part)]
            return {self.one([key] * 9 + list(tree) + TEXTS) if self.chance(part) else key: self.bend(tree[key], part) for key in keys}
        if isinstance(tree, list):
            items = [self.bend(item, part) for item in tree if not self.chance(part)]
            if items and self.chance(3 * part):
                items += [self.one(items)] * self.one([1, 1, 2, 70])
            self.rng.shuffle(items) if self.chance(part) else None
            return items
        if isinstance(tree, str) and self.chance(part):
            at = self.rng.randint(0, len(tree))
            return tree[:at] + self.one(TEXTS + BENT[:8]) + tree[at + self.one([0, 0, 1, len(tree)]):]
        return tree

    def bend_bytes(self, data, part):
        """The same for what is no JSON: some bytes, ranges or lines of it."""
        lines, data = data.split(b"\n"), bytearray(data)
        if len(lines) > 1 and self.chance(0.5):
            at = self.rng.randrange(len(lines))
            lines[at:at + 1] = self.one([[], [lines[at]] * 2, [self.one(lines)], [lines[at][:self.rng.randint(0, len(lines[at]))]]])
            data = bytearray(b"\n".join(lines))
        while data and self.chance(0.5 + part):
            at, many = self.rng.randrange(len(data)), self.one([1, 1, 2, 4, 8, 64])
            data[at:at + many] = self.one([b"\0" * many, b"\xff" * many, bytes(self.rng.randrange(256) for _ in range(many)), b"", b"A" * many])
        return bytes(data)

    def like(self, name):
        """An input with parts of other inputs of the corpus, each changed a little."""
        inputs, part = corpus(name), self.one([0, 0.01, 0.03, 0.1])
        parts = list(self.one(inputs))
        for i, data in enumerate(parts):
            other = self.one(inputs)
            parts[i] = self.bend_part(other[i] if i < len(other) and self.chance(0.2) else data, part)
        return b"\0".join(parts)

    def bend_part(self, data, part):
        try:
            return self.json(self.bend(json.loads(data), part)).encode("utf-8", "surrogatepass")
        except ValueError:
            pass
        try:
            lines = self.bend([json.loads(line) for line in data.splitlines()], part)
        except ValueError:
            return self.bend_bytes(data, part) if self.chance(0.5) else data
        lines = lines if isinstance(lines, list) else [lines]
        return "".join(self.json(line) + "\n" for line in lines).encode("utf-8", "surrogatepass")

    def run_folder(self):
        """As fuzz_run_folder.c has it: a folder like one of the corpus, whose metrics now and then are those of a longer run."""
        parts = (self.like("run_folder").split(b"\0") + [b""] * 5)[:5]
        metrics = self.metrics() if self.chance(0.6) else parts[1]
        cut = self.rng.randint(0, len(metrics)) if self.chance(0.3) else len(metrics)
        parts[1:3] = metrics[:cut], self.one([metrics[cut:], metrics[cut:], b"=" + metrics[cut:], b"=" + self.metrics(), parts[2]])
        parts[3] = self.one([parts[3], b"123 host\n", b"123 host!", b"-1!", b"!", b"9" * self.one([20, 600]) + b"!"])
        parts[4] = self.one([parts[4], b"", b"checkpoint-4", b"checkpoint-<b>\xff", b"checkpoint-4.part", b"adapter_model.safetensors"])
        return b"\0".join(self.one([b"-", b"", part]) if self.chance(0.04) else part for part in parts)

    def metrics(self):
        """Lines of a run, whose steps mostly ascend."""
        lines, step, name = [], self.one([0, 0, 1]), lambda: self.one(["a", "b", "c"]) if self.chance(0.5) else self.text()
        count = self.one([0, 1, 3, 8, 20, 40, 300, 420])
        keys = [key for key in ("loss", "tokens_per_second", "step_seconds", "engine_share", "epoch") if self.chance(0.6 if count < 99 else 0.1)]
        for _ in range(count):
            step += self.one([1] * 40 + [0, -1, 100, 1 << 60])
            number = lambda: self.one(BENT) if self.chance(0.03) else self.one([0, 1, 2.5, self.rng.random(), 1e-9, 1e12])
            lines.append(self.one([lambda: {"step": step, **{key: number() for key in keys}}] * 12 + [
                lambda: {"event": "eval", "step": step, "eval_loss": number(), "eval_seconds": number()},
                lambda: {"event": "sample", "step": step, "prompt": name(), "text": self.text(), "sample_seconds": number()},
                lambda: {"event": self.one(["start", "resume"]), "steps": self.one([step, step + 3, 0]), "steps_per_epoch": number()},
                lambda: {"event": "end", "how": self.one(["finished", "early_stopping"]), "result_step": self.one([step, 1])},
                lambda: {"step": step, "skipped": True, "guard": "loss"}, lambda: self.value()])())
        return "".join(self.json(line) + "\n" for line in lines).encode("utf-8", "surrogatepass")

    def peer(self):
        """As fuzz_peer.c has it: the messages of a rank, or what others share."""
        data = self.one(corpus_bytes("peer"))
        if data[:1] not in (b"n", b"s") or self.chance(0.3):
            return data[:2] + self.bend_bytes(data[2:], 0.2)
        text = b"".join(self.message_of_a_rank() for _ in range(self.one([1, 1, 2, 3, 9])))
        return self.one([b"n", b"n", b"s"]) + bytes([self.rng.randrange(256)]) + text

    def message_of_a_rank(self):
        size = self.one([0, 8, 16, 20, 23, 24, 24, 25, 32, 40, 64, 200, 4100])
        numbers = [0, 1, 2, 3, 12, 77, 255, 1 << 31, (1 << 32) - 1]
        payload = b"".join(self.one(numbers).to_bytes(4, "little") for _ in range(size // 4 + 1))[:self.one([size, 24])]
        payload += self.one([b"a message", b"", b"\xe2\x80\xae\x1b[1m", b"x" * 400])[:max(0, size - len(payload))]
        payload = payload[:size].ljust(size, self.one([b"\0", b"\0", b"a"]))
        lies = self.one([0] * 8 + [1, 2, 3])
        length = self.one([0, 24, 1 << 62, (1 << 64) - 1, size + 1]).to_bytes(8, "little") if lies & 1 else b""
        return bytes([self.one([0, 1, 2, 3, 4, 5, 6, 255]), lies]) + size.to_bytes(2, "little") + length + payload


BENT = ["", "../x", ".git/config", "a.safetensors", "-- --on-finish=id", "\u202e\u2066", "</pre><script>", "\x7f\x85", -1, 0, 1, 1 << 62, -(1 << 63),
        1e308, -1e308, 5e-324, True, False, None, [], {}, [[]], "0123456789abcdef" * 4, "nan"]


@functools.lru_cache
def corpus_bytes(name):
    return [path.read_bytes() for path in sorted((pathlib.Path(__file__).parent / "corpus" / name).iterdir())]


@functools.lru_cache
def corpus(name):
    return [data.split(b"\0") for data in corpus_bytes(name)]


WRITERS = {"rows": Writer.rows, "chat": Writer.chat, "jinja": Writer.jinja, "peer": Writer.peer,
           "run_folder": Writer.run_folder, **{name: functools.partial(Writer.like, name=name) for name in ("hub", "provenance")}}
