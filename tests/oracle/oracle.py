"""What the scripts against transformers share: chats, masks, the truth about logits and its cache, and the checks.

The truth is transformers in float64 (model.double(), eager attention), each chat alone and unpadded. The same pass gives the
logits and the loss, and transformers' own float32 figures beside them. It is made once: a result is kept in a cache
directory under the hash of all that made it (the model's files, the input, the versions of the libraries, and this source),
and torch is imported only when something must be made. Logits are kept rounded to float32, 3e-8 of their range.

Norms, softmax and RoPE angles are float32 in transformers whatever the model's type: 5e-7 of the range on SmolLM2.
"""
import contextlib
import fcntl
import hashlib
import importlib.metadata
import inspect
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ENVIRONMENT = dict(os.environ)  # what hone runs in
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # torch's threads spin otherwise: ruinous beside another busy program
MODELS = ("smollm2", "tiny-llama")
THREADS = 2


# Chats: rows of a data set as they stand in the file, one JSON object each.

def read_lines(data):
    with open(os.path.join(data, "valid.jsonl"), encoding="utf-8") as file:
        return [line for line in file if line.strip()]


def messages(line):
    return json.loads(line)["messages"]


def choose_chats(data, count=16):
    """Chats from the short to the long: sorted by length and cut into `count` equal parts, the middle of each part. They come
    in the order of the file, so lengths are mixed as in real data."""
    lines = read_lines(data)
    order = sorted(range(len(lines)), key=lambda i: (sum(len(m["content"]) for m in messages(lines[i])), i))
    middles = [order[(2 * i + 1) * len(order) // (2 * count)] for i in range(count)]
    return [lines[i] for i in sorted(middles)]


@contextlib.contextmanager
def rows_file(lines):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(line.rstrip("\n") + "\n" for line in lines)
        yield path


# Masks, from the text alone: the contents of the assistant messages, and the added token that begins where one ends.

def trained_ranges(text, conversation):
    """Character ranges of the assistants' contents: each message's header, then its content, are searched in order."""
    at, ranges = 0, []
    for message in conversation:
        header = "<|im_start|>" + message["role"] + "\n"
        begin = text.index(header, at) + len(header)
        assert text.startswith(message["content"], begin), "the message is not where it should be"
        at = begin + len(message["content"])
        if message["role"] == "assistant":
            ranges.append((begin, at))
    return ranges


def expected_mask(tokenizer, added, text, conversation):
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    mask = [0] * len(encoded["input_ids"])
    ranges = trained_ranges(text, conversation)
    ends = {end for begin, end in ranges if end > begin}
    for i, (id, (begin, end)) in enumerate(zip(encoded["input_ids"], encoded["offset_mapping"])):
        if any(begin < stop and end > start for start, stop in ranges) or (begin in ends and id in added):
            mask[i] = 1
    return mask


# The models of transformers.

def load_tokenizer(model):
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(model)


def load_model(model):
    """The model in float32. Its double() is the truth."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
    logging.disable_progress_bar()
    torch.set_num_threads(THREADS)
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()


def make_logits(folder, model, lines):
    """truth.json: ids, mask, and the figures; logits.npy: [sum of the chats' lengths, V]."""
    import torch
    tokenizer, single, double = load_tokenizer(model), load_model(model), load_model(model).double()
    added = set(tokenizer.added_tokens_decoder)
    chats = []
    for line in lines:
        text = tokenizer.apply_chat_template(messages(line), tokenize=False)
        ids = list(tokenizer.apply_chat_template(messages(line), tokenize=True, return_dict=True)["input_ids"])
        mask = expected_mask(tokenizer, added, text, messages(line))
        assert len(mask) == len(ids)
        chats.append({"ids": ids, "mask": mask})

    shape = (sum(len(chat["ids"]) for chat in chats), double.config.vocab_size)
    kept = np.lib.format.open_memmap(os.path.join(folder, "logits.npy"), mode="w+", dtype=np.float32, shape=shape)
    at, low, high, error, trained = 0, math.inf, -math.inf, 0.0, 0
    losses = {"double": 0.0, "single": 0.0}
    with torch.no_grad():
        for chat in chats:
            ids, n = torch.tensor([chat["ids"]]), len(chat["ids"])
            logits = {"double": double(input_ids=ids).logits[0], "single": single(input_ids=ids).logits[0]}
            kept[at:at + n] = logits["double"].numpy()
            at += n
            low, high = min(low, logits["double"].min().item()), max(high, logits["double"].max().item())
            error = max(error, (logits["single"].double() - logits["double"]).abs().max().item())
            targets = [i for i in range(1, n) if chat["mask"][i]]
            trained += len(targets)
            before = torch.tensor(targets) - 1
            for name, values in logits.items():
                # float32's logits too: torch's log_softmax in float32 adds a bias of 2e-6 at V = 49,152
                p = torch.log_softmax(values[before].double(), dim=-1)[torch.arange(len(targets)), ids[0, before + 1]]
                losses[name] -= p.sum().item()
    kept.flush()
    truth = {"chats": chats, "vocabulary": shape[1], "tokens": shape[0], "trained_tokens": trained,
             "range": high - low, "float32_logits": error / (high - low),
             "loss": losses["double"] / trained, "float32_loss": losses["single"] / trained}
    with open(os.path.join(folder, "truth.json"), "w", encoding="utf-8") as file:
        json.dump(truth, file)


def logits_truth(cache, model, lines):
    """What truth.json holds, and the logits by position of all the chats, mapped."""
    return cached(cache, "logits", model, lines, make_logits,
                  lambda folder: (read_truth(folder), np.load(os.path.join(folder, "logits.npy"), mmap_mode="r")))


# The cache.

def read_truth(folder):
    with open(os.path.join(folder, "truth.json"), encoding="utf-8") as file:
        return json.load(file)


def cache_key(model, inputs, make):
    key = hashlib.sha256()
    paths = [os.path.join(model, name) for name in os.listdir(model)] + [__file__, inspect.getfile(make)]
    for name, path in sorted((os.path.basename(path), os.path.abspath(path)) for path in set(paths)):
        with open(path, "rb") as file:
            key.update(name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    versions = [(name, importlib.metadata.version(name)) for name in ("numpy", "tokenizers", "torch", "transformers")]
    key.update(json.dumps([versions, inputs]).encode())
    return key.hexdigest()[:24]


def cached(cache, kind, model, inputs, make, load):
    """load(folder) of the folder that make(folder, model, inputs) filled, now or in an earlier run. A process that comes while it is
    being made waits; a result replaces an older one of its kind."""
    os.makedirs(cache, exist_ok=True)
    prefix = f"{kind}-{os.path.basename(os.path.normpath(model))}-"
    folder = os.path.join(cache, prefix + cache_key(model, inputs, make))
    with open(os.path.join(cache, prefix + "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            for name in os.listdir(cache):
                if re.fullmatch(re.escape(prefix) + r"[0-9a-f]+(\.part)?", name):  # not of a model whose name begins like this one's
                    shutil.rmtree(os.path.join(cache, name))
            part = folder + ".part"
            os.mkdir(part)
            make(part, model, inputs)
            os.rename(part, folder)
        return load(folder)


# Running hone and checking what it says.

def run(*command, input=None):
    """The bytes that a program prints. If it fails, so does the script."""
    done = subprocess.run(command, env=ENVIRONMENT, input=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout


class Checks:
    """Prints a line for each check; end() is the exit status. A NaN passes no check."""

    def __init__(self):
        self.made = self.failed = 0

    def _line(self, good, text):
        self.made += 1
        self.failed += not good
        print(text if good else text + "  FAILED", flush=True)

    def at_most(self, name, figure, limit, beside=""):
        self._line(figure <= limit, f"{name}: {figure:.3g} (limit {limit:.3g}{beside})")

    def equal(self, name, got, want):
        self._line(got == want, f"{name}: {got} (must be {want})")

    def same_text(self, name, got, want):
        self._line(got == want, f"{name}: the same" if got == want else f"{name}:\n    got      {got!r}\n    expected {want!r}\n")

    def end(self):
        print(f"{self.made} checks, {self.failed} failed")
        sys.exit(1 if self.failed or not self.made else 0)


def arguments(doc):
    """PROGRAM ASSETS DATA CACHE"""
    if len(sys.argv) != 5:
        raise SystemExit(doc)
    return sys.argv[1:]
