"""Tokenizers for tokenizer.py: one tokenizer.json changed in each of its parts, and models of other kinds."""

import base64
import json

import gguf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK3 = "|".join([
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+", r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def pre_tokenizer_parts():
    last = byte_level(regex=False)
    yield "gpt2", byte_level()
    yield "prefix-space", byte_level(prefix=True)
    yield "no-regex", last
    yield "no-regex-prefix", byte_level(prefix=True, regex=False)
    for name, pattern in (("llama3", LLAMA3), ("o200k", O200K), ("deepseek3", DEEPSEEK3)):
        yield name, sequence(split(pattern), last)
    yield "digits", sequence({"type": "Digits", "individual_digits": True}, byte_level())
    yield "digit-runs", sequence({"type": "Digits", "individual_digits": False}, byte_level(prefix=True))
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"{behavior}-{invert}", sequence(split(r"\p{L}+|-|\s", behavior, invert), last)
        yield f"punctuation-{behavior}", sequence({"type": "Punctuation", "behavior": behavior}, last)
        yield f"literal-{behavior}", sequence(split("a.", behavior, kind="String"), split(" ", behavior, kind="String"), last)
        yield f"empty-matches-{behavior}", sequence(split(r"x*|(?=\p{Lu})", behavior), last)
    yield "falcon", sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                             {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))
    yield "prefix-for-each", sequence(split(r"\s+", "Removed"), byte_level(prefix=True))
    yield "lines", sequence(split(r"^.|.$|\w+\d|\h{2}|[\w]\W|\v|\S\s"), last)
    yield "han", sequence(split(r"\p{Han}+|[\p{Hiragana}\p{Katakana}]+|\P{Greek}|\p{^Lu}{,3}"), last)
    yield "nested", sequence(sequence(split(r"\x41|\x{4e2d}|\u00e9")), sequence(last))
    for name, pattern in (("qwen2", QWEN2), ("qwen3.5", QWEN35), ("no contractions", LLAMA3[LLAMA3.index("|[^") + 1:])):
        yield name, sequence(split(pattern), last)
    yield "threes", sequence(split(r"\p{N}{1,3}"), last)
    yield "whitespace", sequence({"type": "Whitespace"}, last)
    yield "whitespace split", sequence({"type": "WhitespaceSplit"}, last)
    yield "delimiter", sequence({"type": "CharDelimiterSplit", "delimiter": "e"}, last)


def variants(base):
    """Pairs of a name and a tokenizer.json, and whether the offsets are comparable."""
    def change(**parts):
        copy = json.loads(json.dumps(base))
        copy.update(parts)
        return copy

    for name, pre in pre_tokenizer_parts():
        yield name, change(pre_tokenizer=pre), True
    simple = [{"type": form} for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")]
    simple += [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Strip", "strip_left": False, "strip_right": True},
               {"type": "Prepend", "prepend": "_x "}, {"type": "Replace", "pattern": {"String": "a"}, "content": "éa"},
               {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
               {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}]
    everything = {"type": "Sequence", "normalizers": [simple[1], simple[4], simple[9], simple[0]]}
    for normalizer in simple + [everything]:
        yield "normalizer " + normalizer["type"], change(normalizer=normalizer), False

    def added(**flags):
        vocab = base["model"]["vocab"]
        tokens = [dict(token) for token in base["added_tokens"]]
        for content in ("[TOK]", "tok", "token", "Tok", "é!", "<a>", "<ab>", "<abc>", "  ", "\n", "1"):
            default = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            new = sum(token["content"] not in vocab for token in tokens)
            tokens.append({"id": vocab.get(content, len(vocab) + new), "content": content, **default, **flags})
        return {"added_tokens": tokens}

    for flags in ({}, {"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True, "special": True},
                  {"normalized": True}, {"normalized": True, "single_word": True, "lstrip": True}):
        yield f"added {flags}", change(**added(**flags)), not (flags.get("lstrip") or flags.get("rstrip"))
        yield f"added {flags} NFD", change(normalizer=simple[1], **added(**flags)), False

    model = {**base["model"], "ignore_merges": True}
    yield "ignore_merges", change(model=model), True
    vocab = {token: i for token, i in base["model"]["vocab"].items() if token not in ("Ã", "a", "e")}
    merges = [m for m in base["model"]["merges"] if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab]
    unk = {**base["model"], "vocab": vocab, "merges": merges}
    for fuse in (False, True):
        yield f"unk fuse={fuse}", change(model={**unk, "unk_token": "<|endoftext|>", "fuse_unk": fuse}), False
    yield "bytes missing", change(model=unk), False
    strings = {**base["model"], "merges": [" ".join(m) for m in base["model"]["merges"]]}
    yield "merges as strings", change(model=strings), True


def smaller(base, count):
    """A BPE with the first merges only: variants are read faster, and are the same otherwise."""
    added = {token["content"] for token in base["added_tokens"]}
    vocab, merges = base["model"]["vocab"], base["model"]["merges"]
    made = {left + right for left, right in merges}
    kept = added | {token for token in vocab if token not in made} | {left + right for left, right in merges[:count]}
    ids = {token: i for i, token in enumerate(sorted(kept, key=vocab.get))}
    merges = [pair for pair in merges if pair[0] in kept and pair[1] in kept and "".join(pair) in kept]
    tokens = [{**token, "id": ids[token["content"]]} for token in base["added_tokens"]]
    return {**base, "added_tokens": tokens, "model": {**base["model"], "vocab": ids, "merges": merges}}


def metaspace(scheme, split, replacement="\u2581"):
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split}


def spaced_variants(base):
    """Changes of a SentencePiece-style BPE."""
    def change(**parts):
        copy = json.loads(json.dumps(base))
        copy.update(parts)
        return copy

    for scheme in ("first", "always", "never"):
        for cut in (True, False):
            decoder = {**metaspace(scheme, cut), "type": "Metaspace"}
            yield f"metaspace {scheme} split={cut}", change(normalizer=None, pre_tokenizer=metaspace(scheme, cut), decoder=decoder)
    yield "metaspace _", change(normalizer=None, pre_tokenizer=metaspace("always", True, "_"), decoder=metaspace("always", True, "_"))
    yield "old metaspace", change(normalizer=None, decoder=None, pre_tokenizer={"type": "Metaspace", "replacement": "\u2581",
                                                                               "add_prefix_space": True})
    vocab = {token: i for token, i in base["model"]["vocab"].items() if token not in ("e", "<0x41>", "<0xC3>")}
    merges = [m for m in base["model"]["merges"] if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab]
    less = {**base["model"], "vocab": vocab, "merges": merges}
    yield "bytes missing", change(model=less)
    for fuse in (False, True):
        for bytes_too in (False, True):
            yield f"unk fuse={fuse} bytes={bytes_too}", change(
                model={**less, "unk_token": "<unk>", "fuse_unk": fuse, "byte_fallback": bytes_too})
    yield "ignore_merges", change(model={**base["model"], "ignore_merges": True})
    yield "no space token", change(model={**less, "vocab": {t: i for t, i in vocab.items() if t != "\u2581"}, "unk_token": "<unk>",
                                          "merges": [m for m in merges if "\u2581" not in m]})
    yield "split first", change(normalizer=None, pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, metaspace("always", True)]})
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    yield "strip", change(normalizer={"type": "Sequence", "normalizers": [strip, *base["normalizer"]["normalizers"]]})


def unigram(texts, bytes_too):
    """A small Unigram model, trained on texts."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<unk>", "<s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if bytes_too else [])
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>",
                                                                 show_progress=False))
    file = json.loads(tokenizer.to_str())
    file["model"]["byte_fallback"] = bytes_too
    file["added_tokens"] = file["added_tokens"][:2]
    return file


def unigrams(texts):
    for bytes_too in (False, True):
        base = unigram(texts, bytes_too)
        yield f"unigram bytes={bytes_too}", base
        yield f"unigram whole text bytes={bytes_too}", {**base, "pre_tokenizer": metaspace("first", False)}
    yield "unigram byte-level", {**base, "pre_tokenizer": byte_level(), "decoder": byte_level(), "normalizer": None}
    model = {**base["model"], "vocab": [[token, -5.0 - i % 3] for i, (token, _) in enumerate(base["model"]["vocab"])]}
    yield "unigram equal scores", {**base, "model": model}


def precompiled(path):
    """The vocabulary of a GGUF file as a tokenizer.json: a Unigram with a table of normalisations (XLM-RoBERTa's)."""
    fields = gguf.GGUFReader(path).fields

    def part(name):
        return fields["tokenizer.ggml." + name]

    tokens = [bytes(part("tokens").parts[i]).decode() for i in part("tokens").data]
    scores = [float(part("scores").parts[i][0]) for i in part("scores").data]
    charsmap = bytes(part("precompiled_charsmap").contents())
    unknown = int(part("unknown_token_id").contents())
    normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("always", True)]},
            "post_processor": None, "decoder": metaspace("always", True),
            "model": {"type": "Unigram", "unk_id": unknown, "byte_fallback": False, "vocab": list(map(list, zip(tokens, scores)))}}


def post_processors(base):
    """Changes of a tokenizer.json in what surrounds a text."""
    def template(*items):
        single = [{"Sequence": {"id": "A", "type_id": 0}} if item == "A" else {"SpecialToken": {"id": item, "type_id": 0}}
                  for item in items]
        tokens = {item: {"id": item, "ids": [base["model"]["vocab"][item]], "tokens": [item]} for item in items if item != "A"}
        return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": tokens}

    bos, eos = "<|im_start|>", "<|im_end|>"
    ids = base["model"]["vocab"]
    pair = {"sep": [eos, ids[eos]], "cls": [bos, ids[bos]]}
    roberta = {"type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": False, **pair}
    byte = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    for name, post in (("none", None), ("bos", template(bos, "A")), ("both", template(bos, bos, "A", eos)), ("roberta", roberta),
                       ("bert", {"type": "BertProcessing", **pair}), ("byte-level", byte),
                       ("sequence", {"type": "Sequence", "processors": [byte, template(bos, "A", eos)]})):
        yield "post-processor " + name, {**base, "post_processor": post}
