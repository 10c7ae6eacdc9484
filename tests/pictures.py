#!/usr/bin/env python3
"""Makes the pictures of docs/watching.md: from a run that is running those of terminals, else those of its report.

    pictures.py HONE OUT WORK DOCS      OUT: the output of a run; WORK: a folder for what is in between

The run is watched in tmux at 40, 80 and 200 columns; chromium draws the captured screens and the report, light and dark, and
ImageMagick makes the files small. The pictures are looked at by a person: no test compares them.
"""
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HONE, OUT, WORK, DOCS = map(pathlib.Path, sys.argv[1:5])
THEMES = {"dark": ("#16191d", "#d7dce2", {"32": "#5ec269", "36": "#5ab8c4", "90": "#8a929b"}),
          "light": ("#ffffff", "#24292f", {"32": "#1a7f37", "36": "#1b7c83", "90": "#6e7781"})}


def tmux(server, *args):
    return subprocess.run(["tmux", "-L", server, "-f", "/dev/null", *map(str, args)], check=True, capture_output=True, text=True).stdout


def capture(columns, rows, command, seconds):
    """The screen of a command in a terminal, with its colours, without empty lines at the end."""
    server = f"pictures-{columns}"                          # one that has just ended may still be there
    tmux(server, "new-session", "-d", "-x", columns, "-y", rows, "-s", "picture", "env", "LANG=C.UTF-8", "bash", "--norc", "-c", command)
    time.sleep(seconds)
    text = tmux(server, "capture-pane", "-t", "picture", "-e", "-p")
    tmux(server, "kill-server")
    return text.rstrip("\n")


def paint(text, colours):
    """Colours as spans."""
    out, bold, colour = [], False, None
    for piece in re.split(r"(\x1b\[[\d;]*m)", text):
        if not (code := re.fullmatch(r"\x1b\[([\d;]*)m", piece)):
            style = (f"color:{colours[colour]};" if colour else "") + ("font-weight:bold" if bold else "")
            out.append(f'<span style="{style}">{html.escape(piece)}</span>' if style else html.escape(piece))
            continue
        for number in (code[1] or "0").split(";"):
            bold = number == "1" or (bold and number not in ("0", "22"))
            colour = number if number in colours else None if number in ("0", "39") else colour
    return "".join(out)


def shoot(page, width, height, dark, to, scale=1):
    subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--force-device-scale-factor={scale}",
                    f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--window-size={width},{height}", f"--screenshot={to}",
                    page.resolve().as_uri()], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def small(picture, to, *options):
    """Cut to what is drawn, with few colours."""
    subprocess.run(["/usr/bin/convert", str(picture), *options, "+dither", "-colors", "64", "-strip", f"PNG8:{to}"], check=True)
    print(to, to.stat().st_size)


def terminals():
    screens = {columns: capture(columns, 14, f"{HONE.resolve()} watch {OUT}", 8) for columns in (40, 80, 200)}
    parts = []
    for name, (page, ink, colours) in THEMES.items():
        for columns, text in screens.items():
            parts.append(f'<pre style="background:{page};color:{ink};width:{columns}ch">{paint(text, colours)}</pre>')
    path = WORK / "terminals.html"
    path.write_text('<meta charset="utf-8"><style>body { margin: 12px; background: #b9c0c8; width: max-content } pre { margin: 0 0 10px;'
                    ' padding: 8px 10px; border-radius: 6px; font: 12px/1.35 "DejaVu Sans Mono", monospace }</style>' + "".join(parts))
    shoot(path, 1520, 900, False, WORK / "terminals.png")
    small(WORK / "terminals.png", DOCS / "watching-terminal.png", "-trim", "-bordercolor", "#b9c0c8", "-border", "12")


def reports():
    page = WORK / "report.html"
    subprocess.run([HONE, "report", OUT, "--output", page], check=True, stdout=subprocess.DEVNULL)
    for name in THEMES:
        shoot(page, 1000, 1500, name == "dark", WORK / f"{name}.png")
        small(WORK / f"{name}.png", DOCS / f"watching-report-{name}.png", "-resize", "66%")


os.makedirs(WORK, exist_ok=True)
state = json.loads(subprocess.run([HONE, "watch", OUT, "--json"], check=True, capture_output=True).stdout)["state"]
terminals() if state == "running" else reports()
