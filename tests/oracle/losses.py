"""Losses by name from Python and from C, in float32, against PyTorch and PEFT in float64.

    losses.py MODEL PROGRAM

PROGRAM is losses.c, compiled with hone.h. Finds the package by PYTHONPATH. Compared: the sums of losses, the log-probabilities with
the adapter and without it, the gradient of every trained tensor, and what a step says of them; and the two languages to the digit.
"""
import os
import sys
import tempfile

import hone
import numpy as np
import oracle

LIMIT = 1e-4            # of a gradient, relative in L2
LIMIT_LOGPROB = 2e-4
LOSSES = ("cross_entropy", "ppo", "gspo", "sapo")
LENGTHS = (20, 13, 9, 17)


def make_data(torch, truth, vocabulary, loss, signed=False):
    """Sequences with targets, weights and masks of their own; old log-probabilities that are the truth's or away from it, so that some
    ratios are clipped on either side."""
    away, data = (0.1, 0.5, -0.1, -0.5), []
    for d, length in enumerate(LENGTHS):
        ids = [(d * 41 + i * i * 7 + i * 3 + 5) % vocabulary for i in range(length)]
        datum = hone.Datum(ids, weights=[0.75 * (i % 3) for i in range(length)] if d == 1 else None,
                           mask=[i % 2 or i < 4 for i in range(length)] if d == 2 else None,
                           targets=[(i * 5 + d + 1) % vocabulary for i in range(length)] if d == 3 else None)
        if signed:
            datum = datum._replace(weights=[float(np.float32(0.3 * ((i + d) % 5 - 2))) for i in range(length)])
        if loss != "cross_entropy":
            with torch.no_grad():
                logprobs = truth(datum).tolist()
            # of a sequence all ratios are near 1; those of tokens are not
            step = [(away[d] if loss == "gspo" else away[(i + d) % 4]) for i in range(length)]
            datum = datum._replace(old_logprobs=[float(np.float32(x - y)) for x, y in zip(logprobs, step)],
                                   advantages=[float(np.float32(((d + i // 2) % 3 - 1) * 0.5 + 0.1)) for i in range(length)])
        data.append(datum)
    return data


def asked(datum):
    weights = datum.weights or [1.0] * len(datum.ids)
    rows = [i for i in range(1, len(datum.ids)) if (datum.mask[i] if datum.mask else weights[i] != 0)]
    return rows, [weights[i] for i in rows]


def true_loss(torch, logprobs, datum, loss, settings):
    """The sum of a datum's losses times their weights, from the log-probabilities of its tokens."""
    rows, weights = asked(datum)
    weights, logprobs = torch.tensor(weights, dtype=torch.float64), logprobs[rows]
    if loss == "cross_entropy":
        return (weights * -logprobs).sum()
    old, advantages = (torch.tensor([values[i] for i in rows], dtype=torch.float64) for values in (datum.old_logprobs, datum.advantages))
    difference = logprobs - old
    ratio = (difference.mean().expand(len(rows)) if loss == "gspo" else difference).exp()
    if loss == "sapo":
        temperature = torch.where(advantages > 0, settings.get("sapo_temperature_pos", 1.0), settings.get("sapo_temperature_neg", 1.05))
        return (weights * (-4 / temperature * torch.sigmoid(temperature * (ratio - 1)) * advantages)).sum()
    low = settings.get("epsilon", 0.2)
    clipped = ratio.clamp(1 - low, 1 + settings.get("epsilon_high", low))
    return (weights * -torch.minimum(ratio * advantages, clipped * advantages)).sum()


def write_cases(path, cases):
    def array(values):
        return "0" if values is None else " ".join(["1", *(f"{float(value):.9g}" for value in values)])

    lines = [str(len(cases))]
    for divisor, losses in cases.values():
        lines += [f"{divisor}", str(len(losses))]
        for name, settings, data in losses:
            lines += [name, str(len(settings)), *(f"{key} {value}" for key, value in settings.items()), str(len(data))]
            for datum in data:
                lines += [str(len(datum.ids)), *map(array, (datum.ids, datum.targets, datum.weights, datum.mask, datum.old_logprobs,
                                                            datum.advantages))]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def floats(values):
    return np.array([float(value) for value in values], dtype=np.float32)


def read_cases(text, count):
    """The weights, and a dictionary for each case, of what the program has printed."""
    weights, cases = {}, [{"sums": [], "logprobs": [], "base": [], "gradient": {}} for _ in range(count)]
    left = iter(cases)
    case = next(left)
    for line in text.splitlines():
        what, *rest = line.split()
        if what == "weight":
            weights[rest[0]] = floats(rest[1:])
        elif what == "gradient":
            case["gradient"][rest[0]] = floats(rest[1:])
        elif what == "sum":
            case["sums"].append((float(rest[1]), float(rest[2])))
        elif what in ("logprobs", "base"):
            case[what].append(floats(rest[1:]))
        elif what == "refused":
            case["refused"] = line
        elif what == "step":
            case["step"] = (bool(int(rest[0])), float(rest[1]), float(rest[2]))
            case = next(left, None)
    return weights, cases


def run_python(trainer, divisor, losses):
    case = {"sums": [], "logprobs": [], "base": []}
    for name, settings, data in losses:
        got = trainer.forward_backward(data, name, logprobs=True, **settings)
        case["sums"].append((got.sum, got.weight))
        case["logprobs"] += map(floats, got.logprobs)
        case["base"] += map(floats, trainer.logprobs(data, base=True))
    case["gradient"] = {name: floats(trainer.read_tensor(name, gradient=True)) for name in trainer.tensors()}
    try:
        step = trainer.optim_step(0, max_grad_norm=0, divisor=divisor)
    except hone.Error as error:
        case["refused"] = f"refused {error}"
        step = trainer.optim_step(0, max_grad_norm=0, divisor=1)
    case["step"] = (step.applied, step.loss, step.grad_norm)
    return case


def same(one, other):
    """Whether the numbers of two cases are equal."""
    return all(one.get(key) == other.get(key) for key in ("sums", "step", "refused")) and all(
        len(one[key]) == len(other[key]) and all(np.array_equal(a, b) for a, b in zip(one[key], other[key])) for key in ("logprobs", "base")) \
        and one["gradient"].keys() == other["gradient"].keys() \
        and all(np.array_equal(one["gradient"][name], other["gradient"][name]) for name in one["gradient"])


class Truth:
    """A model in float64 and its trained parameters, under the names that hone has for them."""

    def __init__(self, torch, model, parameters):
        self.torch, self.model, self.parameters = torch, model, parameters

    def logprobs(self, datum):
        torch = self.torch
        rows = self.model(input_ids=torch.tensor([datum.ids])).logits[0].double().log_softmax(-1)
        targets = datum.ids if datum.targets is None else datum.targets
        return torch.cat([rows.new_zeros(1), rows[:-1].gather(1, torch.tensor(targets[1:])[:, None])[:, 0]])

    def gradients(self, losses):
        for parameter in self.parameters.values():
            parameter.grad = None
        sums = []
        for name, settings, data in losses:
            total = sum(true_loss(self.torch, self.logprobs(datum), datum, name, settings) for datum in data)
            total.backward()
            sums.append(total.item())
        return sums, {name: parameter.grad.numpy().ravel() for name, parameter in self.parameters.items()}


def check_case(checks, label, truth, case, divisor, losses):
    sums, want = truth.gradients(losses)
    sizes = [sum(sum(map(abs, asked(datum)[1])) for datum in data) for _, _, data in losses]      # of losses of 1
    for (name, _, _), got, true, size in zip(losses, case["sums"], sums, sizes):
        checks.at_most(f"{label}, sum of {name} off by a part of its weights", abs(got[0] - true) / size, LIMIT)
    checks.equal(f"{label}, tensors on one side only", sorted(want.keys() ^ case["gradient"].keys())[:3], [])
    far = {name: float(np.linalg.norm(case["gradient"][name] - true) / np.linalg.norm(true)) for name, true in want.items()}
    worst = max(far, key=far.get)
    checks.at_most(f"{label}, distance of {len(far)} gradients from float64, that of {worst}", far[worst], LIMIT)
    weight = sum(weight for _, weight in case["sums"])
    applied, loss, norm = case["step"]
    by = divisor or ("refused" in case) or weight
    checks.equal(f"{label}, the step is applied", applied, True)
    checks.at_most(f"{label}, the step's loss off by", abs(loss - sum(sums) / by), LIMIT * sum(sizes) / by)
    true_norm = np.sqrt(sum(np.square(gradient).sum() for gradient in want.values())) / by
    checks.at_most(f"{label}, the step's norm off by a part of it", abs(norm / true_norm - 1), LIMIT)


def check_logprobs(checks, label, truth, got, losses):
    """Of what is asked about; 0 elsewhere."""
    off, at = 0, iter(got)
    for _, _, data in losses:
        for datum in data:
            rows, _ = asked(datum)
            with truth.torch.no_grad():
                want = truth.logprobs(datum).numpy()
            want[[i for i in range(len(want)) if i not in rows]] = 0
            off = max(off, float(np.abs(next(at) - want).max()))
    checks.at_most(label, off, LIMIT_LOGPROB)


def make_adapter(model, folder):
    """Two steps, so that both matrices of every pair have gradients."""
    with hone.Trainer(model, lora_r=4, lora_alpha=8, micro_batch_tokens=64, own_loss=False, sampling=False, logprobs=False) as trainer:
        for _ in range(2):
            trainer.forward_backward([list(range(5, 45))])
            trainer.optim_step(0.02)
        trainer.save(folder)


def main():
    import torch
    from peft import PeftModel
    from safetensors.numpy import load_file
    model, program = sys.argv[1:]
    checks = oracle.Checks()
    with tempfile.TemporaryDirectory() as folder:
        adapter = os.path.join(folder, "adapter")
        make_adapter(model, adapter)
        base = oracle.load_model(model).double()
        peft = PeftModel.from_pretrained(base, adapter, is_trainable=True).double()
        pairs = Truth(torch, peft, {name.replace(".default.", "."): parameter for name, parameter in peft.named_parameters()
                                    if parameter.requires_grad})
        data = {loss: make_data(torch, pairs.logprobs, base.config.vocab_size, loss) for loss in LOSSES}
        signed = make_data(torch, None, base.config.vocab_size, "cross_entropy", signed=True)
        cases = {"ppo": (0, [("ppo", {"epsilon_high": 0.28}, data["ppo"])]), "gspo": (0, [("gspo", {}, data["gspo"])]),
                 "sapo": (0, [("sapo", {"sapo_temperature_neg": 3, "sapo_temperature_pos": 2}, data["sapo"])]),
                 "one epsilon": (0, [("ppo", {"epsilon": 0.05}, data["ppo"])]),
                 "policy gradient": (1, [("cross_entropy", {}, signed)]),
                 "weights that cancel": (0, [("cross_entropy", {}, signed), ("cross_entropy", {}, [
                     datum._replace(weights=[-weight for weight in datum.weights]) for datum in signed[:3]] + [
                         signed[3]._replace(targets=None, weights=[-weight for weight in signed[3].weights])])]),
                 "two losses": (2.5, [("ppo", {}, data["ppo"]), ("cross_entropy", {}, data["cross_entropy"])])}
        path = os.path.join(folder, "cases")
        write_cases(path, cases)
        weights, from_c = read_cases(oracle.run(program, model, adapter, path).decode(), len(cases))
        saved = load_file(os.path.join(adapter, "adapter_model.safetensors"))
        checks.equal("trained weights that are not those of the file",
                     [name for name in saved.keys() | weights.keys() if not np.array_equal(saved[name].ravel(), weights[name])], [])
        with hone.Trainer(model, init_adapter=adapter, micro_batch_tokens=64, dtype="float32", own_loss=False, sampling=False,
                          logprobs=False, base_logprobs=True, losses=LOSSES) as trainer:
            for (label, (divisor, losses)), case in zip(cases.items(), from_c):
                checks.equal(f"{label}, Python gives what C gives", same(run_python(trainer, divisor, losses), case), True)
                check_case(checks, label, pairs, case, divisor, losses)
                check_logprobs(checks, f"{label}, log-probabilities off by", pairs, case["logprobs"], losses)
                with peft.disable_adapter():
                    check_logprobs(checks, f"{label}, those of the base off by", pairs, case["base"], losses)
                checks.equal(f"{label}, refused without a divisor", "Set the divisor" in case.get("refused", ""), label == "weights that cancel")
        whole = oracle.load_model(model).double()
        everything = Truth(torch, whole, dict(whole.named_parameters()))
        with hone.Trainer(model, finetuning_type="full", micro_batch_tokens=64, dtype="float32", own_loss=False, sampling=False,
                          logprobs=False, losses="ppo") as trainer:
            check_case(checks, "ppo, all weights", everything, run_full(trainer, cases["ppo"]), *cases["ppo"])
    checks.end()


def run_full(trainer, case):
    (name, settings, data), = case[1]
    got = trainer.forward_backward(data, name, **settings)
    gradient = {name: floats(trainer.read_tensor(name, gradient=True)) for name in trainer.tensors()}
    step = trainer.optim_step(0, max_grad_norm=0)
    return {"sums": [(got.sum, got.weight)], "gradient": gradient, "step": (step.applied, step.loss, step.grad_norm)}


main()
