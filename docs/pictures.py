"""Make the pictures of the documentation: `python -m docs.pictures [report.png run.svg ...]`.

The report is drawn from the committed results. The recorded terminal and the attention maps need a
trained model, so the quickstart is trained for them. Each picture stores the hash of the file that
it shows, and a test compares the hashes: no picture is older than its results. Chromium is needed
for the report.
"""

from __future__ import annotations

import codecs
import fcntl
import hashlib
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import zipfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

import pyte
from PIL import Image, PngImagePlugin
from pyte.screens import Char

from ablate.plotting import PALETTE

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs"
RESULTS = ROOT / "results/multi30k"
QUICKSTART = ROOT / "studies/quickstart.yaml"
SHOWN = {
    "report.png": RESULTS / "table.json",
    "run.svg": QUICKSTART,
    "attention.png": QUICKSTART,
}  # picture: the file that it shows
KEY = "shown"  # of the hash in a picture's metadata

WIDTH, HEIGHT = 1280, 1560  # of the report, in pixels
COLUMNS, LINES = 80, 80  # of the recorded terminal, in which nothing scrolls
SHOWN_LINES = 23  # of it: the first ones, and at the end those from the conclusion on
CELL, LINE, FONT = 8.4, 18, 14  # width of a character, height of a line, size of the font: pixels
FRAMES, FRAME, LAST = 24, 0.7, 5.0  # number of pictures; seconds that one stays, and the last one
COLORS = {"red": PALETTE["worse"], "green": PALETTE["better"], "cyan": PALETTE["c5"]}


def hash_of(picture: str) -> str:
    """SHA-256 of the file that a picture shows."""
    return hashlib.sha256(SHOWN[picture].read_bytes()).hexdigest()


def stored_hash(path: Path) -> str | None:
    """The hash in the metadata of a picture; `None` where it has none."""
    if path.suffix == ".svg":
        found = re.search(rf"<metadata>{KEY} (\w+)</metadata>", path.read_text(encoding="utf-8"))
        return found[1] if found else None
    with Image.open(path) as image:
        return image.info.get(KEY)


def draw_report(scratch: Path) -> bytes:
    """The top of the page that `ablate report` writes for the published results."""
    browsers = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    browser = next(browsers, None)
    if browser is None:
        raise SystemExit("report.png: Chromium is not installed")
    zipfile.ZipFile(RESULTS / "records.zip").extractall(scratch / "published")
    page, picture = scratch / "report.html", scratch / "report.png"
    study = ROOT / f"studies/{RESULTS.name}.yaml"
    _ablate("report", study, "--results", scratch / "published", "--out", page)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    flags += [f"--user-data-dir={scratch}/browser", f"--window-size={WIDTH},{HEIGHT}"]
    command = [browser, *flags, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    return picture.read_bytes()


def draw_attention(scratch: Path) -> bytes:
    """Maps of the last cross-attention of the quickstart's base."""
    picture = scratch / "attention.png"
    words = ("--kind", "cross", "--layer", "2", "--results", _trained(scratch))
    _ablate("attention", QUICKSTART, "base", *words, "--out", picture)
    return picture.read_bytes()


def draw_run(scratch: Path) -> bytes:
    """The quickstart in a terminal, as a moving picture."""
    (scratch / "studies").mkdir()
    shutil.copy(QUICKSTART, scratch / "studies")
    screens = record(_command("run", f"studies/{QUICKSTART.name}"), scratch)
    *before, end = screens
    texts = ["".join(char.data for char in line) for line in end]
    start = next(i for i, text in enumerate(texts) if text.startswith("Base reaches"))
    shown = [*(screen[:SHOWN_LINES] for screen in before), end[start : start + SHOWN_LINES]]
    return animate(shown).encode()


def _trained(scratch: Path) -> Path:
    """The results root of a finished quickstart; trains it where it was not recorded."""
    root = scratch / "results"
    _ablate("run", QUICKSTART, "--results", root)
    return root


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ablate", *map(str, words)]


def _ablate(*words: object) -> None:
    subprocess.run(_command(*words), check=True, stdout=subprocess.DEVNULL)


def record(command: list[str], folder: Path) -> list[list[list[Char]]]:
    """Run a command in a terminal, in a folder, and return the screens that it showed.

    A screen is a list of lines, and a line a list of characters with their style.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ |= {
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "LINES": str(LINES),
        }
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.Stream(screen)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    screens: list[list[list[Char]]] = []
    shown = 0.0
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
        stream.feed(decoder.decode(data))
        if time.monotonic() - shown > 0.5:
            _keep(screens, screen)
            shown = time.monotonic()
    _keep(screens, screen)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: exit code {os.waitstatus_to_exitcode(status)}")
    return screens


def _keep(screens: list[list[list[Char]]], screen: pyte.Screen) -> None:
    lines = [[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(LINES)]
    if not screens or lines != screens[-1]:
        screens.append(lines)


def animate(screens: list[list[list[Char]]]) -> str:
    """An SVG that shows screens one after another, at most `FRAMES` of them."""
    last = len(screens) - 1
    chosen = sorted({round(last * frame / (FRAMES - 1)) for frame in range(FRAMES)})
    seconds = FRAME * (len(chosen) - 1) + LAST
    frames = []
    for place, number in enumerate(chosen):
        begin = FRAME * place / seconds
        end = FRAME * (place + 1) / seconds if number != last else 1.0
        frames.append(_frame(screens[number], begin, end, seconds))
    width, height = round(COLUMNS * CELL) + 2 * LINE, (SHOWN_LINES + 2) * LINE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, '
        f'monospace" font-size="{FONT}" fill="{PALETTE["ink"]}">\n'
        f"<metadata>{KEY} {hash_of('run.svg')}</metadata>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#f7f7f9"/>\n'
        f'<g transform="translate({LINE} {LINE})">\n' + "".join(frames) + "</g>\n</svg>\n"
    )


def _frame(lines: list[list[Char]], begin: float, end: float, seconds: float) -> str:
    """One screen, visible between two fractions of the picture's `seconds`."""
    times = [0.0, begin, end] if begin else [0.0, end]
    values = ["hidden", "visible", "hidden"] if begin else ["visible", "hidden"]
    texts = []
    for y, line in enumerate(lines):
        texts += _texts(line, (y + 0.7) * LINE)
    return (
        f'<g visibility="hidden"><animate attributeName="visibility" values="{";".join(values)}" '
        f'keyTimes="{";".join(f"{at:.4f}" for at in times)}" dur="{seconds:.1f}s" '
        f'calcMode="discrete" repeatCount="indefinite"/>\n{"".join(texts)}</g>\n'
    )


def _texts(line: list[Char], y: float) -> list[str]:
    """A line as one element for each run of characters in one style."""
    texts = []
    x = 0
    for (color, bold), group in groupby(line, key=lambda char: (char.fg, char.bold)):
        text = "".join(char.data for char in group)
        if text.strip():
            style = f' fill="{COLORS[color]}"' if color in COLORS else ""
            style += ' font-weight="bold"' if bold else ""
            texts.append(
                f'<text x="{x * CELL:.1f}" y="{y:.1f}" textLength="{len(text) * CELL:.1f}" '
                f'xml:space="preserve"{style}>{escape(text)}</text>\n'
            )
        x += len(text)
    return texts


def with_hash(image: bytes, picture: str) -> bytes:
    """A PNG of at most 256 colors with the hash of what it shows in its metadata."""
    data = PngImagePlugin.PngInfo()
    data.add_text(KEY, hash_of(picture))
    file = io.BytesIO()
    small = Image.open(io.BytesIO(image)).convert("RGB").quantize(256)
    small.save(file, "PNG", optimize=True, pnginfo=data)
    return file.getvalue()


DRAW: dict[str, Callable[[Path], bytes]] = {
    "report.png": draw_report,
    "run.svg": draw_run,
    "attention.png": draw_attention,
}


def main(names: list[str]) -> None:
    """Draw these pictures, or all."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names or DRAW:
            image = DRAW[name](Path(folder))
            (FOLDER / name).write_bytes(image if name[-3:] == "svg" else with_hash(image, name))
            print(f"docs/{name}")


if __name__ == "__main__":
    main(sys.argv[1:])
