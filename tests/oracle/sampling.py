#!/usr/bin/env python3
"""Biases, penalties and what is left to be drawn, against transformers' logits processors in the order in which its generate has them.

    sampling.py TOOL

Logits with biases and the repetition penalty are compared bit by bit. transformers has no frequency and no presence penalty: vLLM's
formulas stand here for them. What is left to be drawn is compared by draws: none of a token that transformers leaves out, and as many
of the others as their probabilities say, within 6 standard deviations. Breaks with the penalty before the bias, with the
frequency penalty over the prompt too, with top_k one more, with min_p before top_p, and with top_p of all tokens after top_k.
"""
import collections
import itertools
import os
import struct
import sys
import tempfile

import oracle
import torch
from transformers import GenerationConfig, GenerationMixin, LlamaConfig
from transformers.generation import logits_process as theirs

TOOL = sys.argv[1]
V, DRAWS = 200, 6000
Setting = collections.namedtuple("Setting", "temperature top_k top_p min_p repetition presence frequency bias",
                                 defaults=[1.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0, {}])
BIAS = {3: 2.5, 17: -100.0, 40: 100.0, 150: -0.3, 199: 1.0}
SETTINGS = [Setting(), Setting(bias=BIAS), Setting(repetition=1.3), Setting(repetition=0.7), Setting(presence=1.5), Setting(frequency=-0.5),
            Setting(repetition=1.2, presence=0.3, frequency=0.7, bias={3: 2.5, 17: -4.0}), Setting(bias={5: 1.0, 6: -1.0}, repetition=2.0)]
SETTINGS += [Setting(temperature, top_k, top_p, min_p, repetition) for temperature, top_k, top_p, min_p, repetition in itertools.product(
    (0.6, 1.7), (0, 1, 12, 60), (0.3, 0.9, 1.0), (0.0, 0.05, 0.4), (1.0, 1.3))]


def adjust(setting, ids, prompt, logits):
    """transformers' processors, and vLLM's formulas after them."""
    scores, row = logits[None].clone(), torch.tensor([ids])
    if setting.bias:
        scores = theirs.SequenceBiasLogitsProcessor({(id,): value for id, value in setting.bias.items()})(row, scores)
    if setting.repetition != 1:
        scores = theirs.RepetitionPenaltyLogitsProcessor(setting.repetition)(row, scores)
    counts = torch.bincount(torch.tensor(ids[prompt:]), minlength=V)
    scores -= setting.frequency * counts
    scores -= setting.presence * (counts > 0)
    return row, scores


def left(setting, row, scores):
    """The probabilities that transformers draws by."""
    scores = theirs.TemperatureLogitsWarper(setting.temperature)(row, scores)
    if setting.top_k:
        scores = theirs.TopKLogitsWarper(setting.top_k)(row, scores)
    if setting.top_p < 1:
        scores = theirs.TopPLogitsWarper(setting.top_p)(row, scores)
    if setting.min_p:
        scores = theirs.MinPLogitsWarper(setting.min_p)(row, scores)
    return scores.double().softmax(-1)[0]


def check_order(checks):
    """The order above is that of transformers' generate."""
    config = GenerationConfig(do_sample=True, sequence_bias={(1,): 1.0}, repetition_penalty=1.1, temperature=0.7, top_k=5, top_p=0.9, min_p=0.1)
    config._eos_token_tensor = None                     # pylint: disable=protected-access
    holder = type("Holder", (GenerationMixin,), {"config": LlamaConfig()})()
    names = [type(each).__name__ for each in holder._get_logits_processor(config, input_ids_seq_length=1)]   # pylint: disable=protected-access
    checks.equal("the order of transformers' processors", names,
                 ["SequenceBiasLogitsProcessor", "RepetitionPenaltyLogitsProcessor", "TemperatureLogitsWarper", "TopKLogitsWarper",
                  "TopPLogitsWarper", "MinPLogitsWarper"])


def main():
    checks = oracle.Checks()
    check_order(checks)
    generator = torch.Generator().manual_seed(5)
    for number, setting in enumerate(SETTINGS):
        logits = torch.randn(V, generator=generator) * 3
        ids, prompt = torch.randint(0, V, (40,), generator=generator).tolist() + [3, 3, 5], 25
        with tempfile.NamedTemporaryFile() as file:
            file.write(struct.pack("7d", setting.temperature, setting.top_p, setting.min_p, setting.repetition, setting.presence,
                                   setting.frequency, DRAWS))
            file.write(struct.pack("6q", V, setting.top_k, prompt, len(ids), len(setting.bias), number * DRAWS))
            file.write(logits.numpy().tobytes() + struct.pack(f"{len(ids)}i", *ids) + struct.pack(f"{len(setting.bias)}i", *setting.bias)
                       + struct.pack(f"{len(setting.bias)}f", *setting.bias.values()))
            file.flush()
            out = oracle.run(TOOL, os.path.abspath(file.name))
        ours, drawn = torch.tensor(struct.unpack(f"{V}f", out[:4 * V])), torch.tensor(struct.unpack(f"{V}q", out[4 * V:]))
        row, scores = adjust(setting, ids, prompt, logits)
        p = left(setting, row, scores)
        name = ", ".join(f"{key} {value}" for key, value in setting._asdict().items() if value != Setting._field_defaults[key]) or "nothing"
        checks.equal(f"{name}: logits that differ", int((ours != scores[0]).sum()), 0)
        checks.equal(f"{name}: draws of tokens that transformers leaves out", int(drawn[p == 0].sum()), 0)
        away = (drawn - p * DRAWS).abs() / (p * (1 - p) * DRAWS).sqrt().clamp(min=1)
        checks.at_most(f"{name}: standard deviations from the probabilities", float(away.max()), 6)
    checks.end()


main()
