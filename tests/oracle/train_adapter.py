"""The adapter is real: what hone trains, PEFT loads, runs and merges, and it means the same to both.

hone trains five steps, at a rate at which the adapter matters. Then, with and without trained norms: PEFT finds every tensor of
the file; the logits at every position of four chats are those of PEFT in float64, and again with lora_alpha doubled, which must
change them; lora_alpha doubled and B halved changes nothing; and the loss over six chats is the same for the adapter in
hone, for the model that PEFT merged in hone, and for PEFT.
"""
import json
import os
import shutil
import tempfile

import float64
import numpy as np
import oracle
import train_truth

STEPS, RATE = 5, "1e-3"
SLOTS = 1024
LIMIT_LOGITS = 1e-5     # these three in parts of the range of the logits
LIMIT_SAME = 1e-6
CHANGE_MIN = 1e-3
LIMIT_MERGED = 1e-6     # and these two in parts of the loss
LIMIT_LOSS = 1e-5
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def train(hone, model, data, folder, norms):
    out = os.path.join(folder, "out")
    with oracle.rows_file(train_truth.read_train(data, STEPS * train_truth.CHATS)) as rows:
        oracle.run(hone, "train", "--model", model, "--data", rows, "--output", out,
                   "--cache-dir", os.path.join(folder, "cache"), "--dtype", "float32", "--train-norms", norms,
                   "--per-device-train-batch-size", str(train_truth.CHATS), "--max-steps", str(STEPS), "--learning-rate", RATE,
                   "--save-steps", "0", "--resume", "none")
    return out


def variant(adapter, folder, alpha, b):
    """A copy with lora_alpha and the matrices B multiplied."""
    from safetensors.numpy import load_file, save_file
    os.mkdir(folder)
    with open(os.path.join(adapter, CONFIG), encoding="utf-8") as file:
        config = json.load(file)
    config["lora_alpha"] *= alpha
    with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as file:
        json.dump(config, file)
    tensors = load_file(os.path.join(adapter, WEIGHTS))
    save_file({name: value * np.float32(b) if "lora_B" in name else value for name, value in tensors.items()},
              os.path.join(folder, WEIGHTS), metadata={"format": "pt"})
    return folder


# Both sides: for the chats one after another, ids and logits at every position.

def hone_logits(tool, model, lines, V, adapter):
    with oracle.rows_file(lines) as rows, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits.bin")
        oracle.run(tool, model, rows, path, str(SLOTS), adapter)
        out = np.fromfile(path, dtype=np.int32)
    at, ids, logits = 0, [], []
    while at < len(out):
        n = int(out[at])
        ids += out[at + 1:at + 1 + n].tolist()
        logits.append(out[at + 1 + n:at + 1 + n + n * V].view(np.float32).reshape(n, V))
        at += 1 + n + n * V
    return ids, np.concatenate(logits)


def peft_net(model, adapter):
    """In float64."""
    from peft import PeftModel
    return PeftModel.from_pretrained(oracle.load_model(model), adapter).double().eval()


def peft_logits(net, chats):
    import torch
    with torch.no_grad(), float64.throughout():
        return np.concatenate([net(input_ids=ids, use_cache=False).logits[0].numpy() for ids, _ in chats])


def peft_loss(net, chats):
    import torch
    with torch.no_grad(), float64.throughout():
        lost = sum(torch.nn.functional.cross_entropy(net(input_ids=ids, use_cache=False).logits[0, targets - 1], ids[0, targets],
                                                     reduction="sum").item() for ids, targets in chats)
    return lost / sum(len(targets) for _, targets in chats)


def merge(model, adapter, folder):
    """The model with the adapter in its weights, in float32, and the other files of the model."""
    from peft import PeftModel
    PeftModel.from_pretrained(oracle.load_model(model), adapter).merge_and_unload().save_pretrained(folder)
    for name in os.listdir(model):
        if not name.endswith(".safetensors") and not os.path.exists(os.path.join(folder, name)):
            shutil.copy(os.path.join(model, name), folder)
    return folder


# Checks.

def check_file(checks, label, adapter, net, norms):
    """PEFT ignores tensors that it does not know and initialises those that are missing, so its own are compared with the file's."""
    import peft
    from safetensors.numpy import load_file
    file = load_file(os.path.join(adapter, WEIGHTS))
    held = {name: value.numpy() for name, value in peft.get_peft_model_state_dict(net, save_embedding_layers=False).items()}
    checks.equal(f"{label}, tensors in the file or in PEFT only", sorted(set(file) ^ set(held))[:3], [])
    other = [name for name in sorted(set(file) & set(held)) if not np.array_equal(file[name], held[name])]
    checks.equal(f"{label}, tensors that differ in PEFT", other[:3], [])
    layers, matrices = net.config.num_hidden_layers, [name for name in file if "lora_" in name]
    checks.equal(f"{label}, tensors of LoRA", len(matrices), 2 * 7 * layers)
    checks.equal(f"{label}, tensors of norms", len(file) - len(matrices), 2 * layers + 1 if norms else 0)


def check_logits(checks, label, tool, model, lines, adapter, net, folder):
    chats = train_truth.encode(model, lines)
    V = net.config.vocab_size
    want_ids = [id for ids, _ in chats for id in ids[0].tolist()]
    twice = variant(adapter, os.path.join(folder, "twice"), 2, 1)
    moved = variant(adapter, os.path.join(folder, "moved"), 2, 0.5)
    want = {adapter: peft_logits(net, chats), twice: peft_logits(peft_net(model, twice), chats)}
    got = {}
    for name in (adapter, twice, moved):
        ids, got[name] = hone_logits(tool, model, lines, V, name)
        checks.equal(f"{label}, ids are those of transformers", ids == want_ids, True)
        if ids != want_ids:
            return
    span = want[adapter].max() - want[adapter].min()

    def off(a, b):
        return float(np.abs(a - b).max() / span)

    checks.at_most(f"{label}, logits from PEFT's", off(got[adapter], want[adapter]), LIMIT_LOGITS)
    checks.at_most(f"{label}, logits from PEFT's, lora_alpha doubled", off(got[twice], want[twice]), LIMIT_LOGITS)
    checks.at_most(f"{label}, logits, lora_alpha doubled and B halved", off(got[moved], got[adapter]), LIMIT_SAME)
    change = off(got[twice], got[adapter])
    checks.equal(f"{label}, lora_alpha doubled changes the logits by {change:.3g}, more than {CHANGE_MIN}",
                 change > CHANGE_MIN, True)


def check_losses(checks, label, hone, model, lines, adapter, net, folder):
    merged = merge(model, adapter, os.path.join(folder, "merged"))
    want = peft_loss(net, train_truth.encode(model, lines))

    def loss(*options):
        with oracle.rows_file(lines) as rows:
            return json.loads(oracle.run(hone, "eval", "--data", rows, "--cache-dir", os.path.join(folder, "cache"),
                                         "--dtype", "float32", "--json", *options))["loss"]

    apart, inside = loss("--model", model, "--adapter", adapter), loss("--model", merged)
    checks.at_most(f"{label}, loss {apart:.9g} with the adapter, merged {inside:.9g}, apart by a part of it",
                   abs(apart - inside) / want, LIMIT_MERGED)
    checks.at_most(f"{label}, loss with the adapter from PEFT's {want:.9g}", abs(apart - want) / want, LIMIT_LOSS)
    checks.at_most(f"{label}, loss merged from PEFT's", abs(inside - want) / want, LIMIT_LOSS)


def check(checks, hone, tool, model, data):
    for norms in ("false", "true"):
        label = "adapter with norms" if norms == "true" else "adapter"
        with tempfile.TemporaryDirectory() as folder:
            adapter = train(hone, model, data, folder, norms)
            net = peft_net(model, adapter)
            check_file(checks, label, adapter, net, norms == "true")
            check_logits(checks, label, tool, model, oracle.choose_chats(data, 4), adapter, net, folder)
            check_losses(checks, label, hone, model, oracle.choose_chats(data, 6), adapter, net, folder)
