"""Draws the losses of a training run.

    plot_loss.py METRICS.jsonl OUT.svg

Training loss: every step faintly, and its running mean. Validation loss: a dot for each validation. The first line of the file
is a header; lines with "loss" are steps, lines with "eval_loss" are validations.
"""
import json
import math
import sys

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 46, 48  # margins of the plot
PAPER, INK, QUIET, GRID = "#fcfcfb", "#1f2328", "#656d76", "#e4e6e8"
TRAIN, VALID = "#4c83c3", "#d1572b"
DOTTED = 'stroke-width="1.2" stroke-linecap="round" stroke-dasharray="1 4"'
REACH = 5  # of the running mean, in steps to either side


def read(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()][1:]
    return ([(line["step"], line["loss"]) for line in lines if "loss" in line],
            [(line["step"], line["eval_loss"]) for line in lines if "eval_loss" in line])


def running_mean(points, reach=REACH):
    """The mean of each step and as many before it as after it, so that a falling loss is not shown late."""
    means = []
    for i, (step, _) in enumerate(points):
        side = min(reach, i, len(points) - 1 - i)
        near = points[i - side:i + side + 1]
        means.append((step, sum(value for _, value in near) / len(near)))
    return means


def ticks(low, high, max_count):
    """Multiples of 1, 2 or 5 times a power of ten, the first at or below low and the last at or above high."""
    rough = max(high - low, 1e-9) / max_count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(first + 1, last) + 1)]


class Drawing:
    """Axes in a box (left, top, right, bottom) of a picture, and what is drawn there. The y axis has the range of `values`."""

    def __init__(self, last, values, box=(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM), max_ticks=(8, 6)):
        self.last, self.box, self.parts = last, box, []
        self.xs = [x for x in ticks(0, last, max_ticks[0]) if x <= last]
        self.ys = ticks(min(values), max(values), max_ticks[1])

    def x(self, step):
        left, _, right, _ = self.box
        return left + (right - left) * step / self.last

    def y(self, value):
        _, top, _, bottom = self.box
        return top + (bottom - top) * (self.ys[-1] - value) / (self.ys[-1] - self.ys[0])

    def text(self, x, y, words, colour=QUIET, anchor="middle", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{more}>{words}</text>')

    def line(self, points, colour, look):
        path = " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-linejoin="round" {look}/>')

    def dots(self, points, colour):
        for step, value in points:
            self.parts.append(f'<circle cx="{self.x(step):.1f}" cy="{self.y(value):.1f}" r="4" fill="{colour}" stroke="{PAPER}"'
                              f' stroke-width="1.5"/>')

    def axes(self, name, unit=""):
        """`name`: of what the y axis shows."""
        left, top, right, bottom = self.box
        places = max(0, -math.floor(math.log10(self.ys[1] - self.ys[0]) + 1e-9))  # enough to tell one tick from the next
        for tick in self.ys:
            y = self.y(tick)
            self.parts.append(f'<path d="M{left} {y:.1f}H{right}" stroke="{GRID}"/>')
            self.text(left - 9, y + 4.5, f"{tick:.{places}f}{unit}", anchor="end")
        self.parts.append(f'<path d="M{left} {bottom}H{right}" stroke="{QUIET}"/>')
        for tick in self.xs:
            self.parts.append(f'<path d="M{self.x(tick):.1f} {bottom}v5" stroke="{QUIET}"/>')
            self.text(self.x(tick), bottom + 19, f"{tick:g}")
        self.text((left + right) / 2, bottom + 39, "step")
        if name:
            middle, x = (top + bottom) / 2, left - 41
            self.text(x, middle, name, more=f' transform="rotate(-90 {x} {middle:.1f})"')

    def key(self, x, y, words, colour, look='stroke-width="2" stroke-linecap="round"'):
        """A line of the legend."""
        self.parts.append(f'<path d="M{x} {y}h22" stroke="{colour}" {look}/>')
        self.text(x + 29, y + 4, words, INK, "start")


def svg(title, parts, width=WIDTH, height=HEIGHT):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            f' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13">\n'
            f'<title>{title}</title>\n'
            f'<rect width="{width}" height="{height}" rx="6" fill="{PAPER}"/>\n' + "\n".join(parts) + "\n</svg>\n")


def legend(drawing, with_evals):
    y, x = TOP - 21, LEFT
    drawing.key(x, y, "training", TRAIN)
    if with_evals:
        x += 108
        drawing.key(x, y, "validation", VALID, DOTTED)
        drawing.parts.append(f'<circle cx="{x + 11}" cy="{y}" r="4" fill="{VALID}" stroke="{PAPER}" stroke-width="1.5"/>')


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    steps, evals = read(sys.argv[1])
    if not steps:
        raise SystemExit(f"{sys.argv[1]}: no steps")
    drawing = Drawing(max(step for step, _ in steps + evals), [loss for _, loss in steps + evals])
    drawing.axes("loss")
    drawing.line(steps, TRAIN, 'stroke-width="1" opacity="0.45"')
    drawing.line(running_mean(steps), TRAIN, 'stroke-width="1.8"')
    if evals:
        drawing.line(evals, VALID, DOTTED)
        drawing.dots(evals, VALID)
        halo = f' font-weight="600" stroke="{PAPER}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
        (first, high), (last, low) = evals[0], evals[-1]
        drawing.text(drawing.x(first) + 10, drawing.y(high) - 8, f"{high:.2f}", VALID, "start", halo)
        if last > first:
            drawing.text(drawing.x(last) + 2, drawing.y(low) - 12, f"{low:.2f}", VALID, "end", halo)
    legend(drawing, bool(evals))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(svg("Training and validation loss by step", drawing.parts))


if __name__ == "__main__":
    main()
