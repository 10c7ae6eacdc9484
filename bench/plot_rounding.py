"""Draws what rounding.py measured, and prints it as tables. With HONE_RECORD the sums go to tests/RESULTS.md.

    plot_rounding.py RESULTS.jsonl OUT.svg

How far a bfloat16 run is from the float32 run of the same trainer, seed and rate: (its loss - float32's) / float32's, step by
step. Where a trainer has no such float32 run, hone's stands for it; where both exist, their distance is printed. The picture
shows the first seed, a plot for each rate, as running means; the tables show all runs.
"""
import os
import sys

import plot_loss
import rounding

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import figures

REACH = 10  # of the running mean, in steps to either side
COLUMNS, WIDTH, PLOT_WIDTH, PLOT_HEIGHT = 2, 760, 294, 176
LINES = {  # by trainer, in the order in which they are drawn
    "hone, two roundings": ("#b9c0c7", 'stroke-width="4" stroke-linecap="round"'),
    "PEFT": ("#d1572b", 'stroke-width="1.8" stroke-linecap="round"'),
    "hone": ("#2f6db5", 'stroke-width="1.8" stroke-linecap="round"'),
}


def same(run, other):
    return all(run[key] == other[key] for key in rounding.RUN if key != "trainer")


def exact_run(study, run):
    """The float32 run of a bfloat16 run, or None."""
    want = {**run, "dtype": "float32"}
    exact = {other["trainer"]: other for other in study if same(other, want)}
    return exact.get(run["trainer"], exact.get("hone"))


def distances(run, exact):
    return [a / b - 1 for a, b in zip(run["losses"], exact["losses"])]


def rate_text(rate):
    return f"{rate:.0e}".replace("e-0", "e-")


def mean(values):
    return sum(values) / len(values)


def pairs(study):
    """The bfloat16 runs with their float32 runs, by rate, seed and trainer."""
    order = list(LINES)
    runs = [run for run in study if run["dtype"] == "bfloat16" and run["trainer"] in order]
    runs.sort(key=lambda run: (run["rate"], run["seed"], order.index(run["trainer"])))
    return [(run, exact_run(study, run)) for run in runs if exact_run(study, run)]


def print_distances(found):
    print("| rate | seed | trainer | mean over all steps | steps by quarters |\n|---|---|---|---|---|")
    for run, exact in found:
        far = distances(run, exact)
        quarters = [far[len(far) * i // 4:len(far) * (i + 1) // 4] for i in range(4)]
        print(f"| {rate_text(run['rate'])} | {run['seed']} | {run['trainer']} | {mean(far):+.2%} | "
              + ", ".join(f"{mean(quarter):+.2%}" for quarter in quarters) + " |")


def print_evaluations(found):
    print("\n| rate | seed | trainer | float32 run | bfloat16 run | the bfloat16 run's adapter, in float32 |")
    print("|---|---|---|---|---|---|")
    for run, exact in found:
        print(f"| {rate_text(run['rate'])} | {run['seed']} | {run['trainer']} | "
              + (f"{exact['eval_loss']:.4f}" if exact["trainer"] == run["trainer"] else "") +
              f" | {run['eval_loss']:.4f} | {run['adapter_loss']:.4f} |")


def print_agreement(study):
    """How far the float32 runs of the trainers are from each other."""
    for run in study:
        exact = exact_run(study, {**run, "trainer": "hone"})
        if run["dtype"] == "float32" and run["trainer"] != "hone" and exact:
            far = [abs(d) for d in distances(run, exact)]
            print(f"\nfloat32, rate {rate_text(run['rate'])}, seed {run['seed']}: {run['trainer']}'s losses are off hone's by"
                  f" {mean(far):.1e} on average, {max(far):.1e} at the most; validation losses"
                  f" by {abs(run['eval_loss'] / exact['eval_loss'] - 1):.1e}")


def record(found):
    for run, exact in found:
        figures.record("Rounding", f"{rate_text(run['rate'])}, seed {run['seed']}, {run['trainer']}",
                       training_loss_above_float32=f"{mean(distances(run, exact)):.2%}",
                       validation_loss_in_float32=f"{exact['eval_loss']:.4f}" if exact["trainer"] == run["trainer"] else "",
                       in_bfloat16=f"{run['eval_loss']:.4f}", of_its_adapter_in_float32=f"{run['adapter_loss']:.4f}")


def legend(plot, x, trainers):
    plot.text(x, 26, "training loss in bfloat16, relative to float32's of the same step", plot_loss.INK, "start")
    for trainer in trainers:
        plot.key(x, 49, trainer, *LINES[trainer])
        x += 62 + 7 * len(trainer)


def draw(found):
    seed = min(run["seed"] for run, _ in found)
    found = [(run, exact) for run, exact in found if run["seed"] == seed]
    rates = sorted({run["rate"] for run, _ in found})
    lines = {(run["rate"], run["trainer"]): plot_loss.running_mean(
                 [(i + 1, 100 * d) for i, d in enumerate(distances(run, exact))], REACH) for run, exact in found}
    values = [0.0] + [value for line in lines.values() for _, value in line]
    last, parts, bottom = max(line[-1][0] for line in lines.values()), [], 0
    for i, rate in enumerate(rates):
        left, top = 62 + i % COLUMNS * (PLOT_WIDTH + 66), 92 + i // COLUMNS * (PLOT_HEIGHT + 76)
        bottom = top + PLOT_HEIGHT
        plot = plot_loss.Drawing(last, values, (left, top, left + PLOT_WIDTH, bottom), (4, 6))
        plot.axes("", "%")
        plot.text(left + PLOT_WIDTH, top - 8, f"learning rate {rate_text(rate)}", plot_loss.INK, "end", ' font-weight="600"')
        for trainer, look in LINES.items():
            if (rate, trainer) in lines:
                plot.line(lines[rate, trainer], *look)
        if i == 0:
            legend(plot, left, [trainer for trainer in LINES if any(trainer == of for _, of in lines)])
        parts += plot.parts
    return plot_loss.svg("Training loss in bfloat16, relative to float32, by step", parts, WIDTH, bottom + 54)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    runs = rounding.read_results(sys.argv[1])
    found = pairs(runs)
    if not found:
        raise SystemExit(f"{sys.argv[1]}: no bfloat16 run has a float32 run of the same kind")
    print_distances(found)
    print_evaluations(found)
    print_agreement(runs)
    record(found)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(found))


main()
