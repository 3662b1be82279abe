"""The page in headless Chromium: it renders without an error, sorts, filters and hides rows,
prints, fits a phone.
"""

import html
import json
import re
import shutil
import subprocess
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from matplotlib.image import imread

from ablate.page.html import table_html
from ablate.plotting import PALETTE

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

WATCH = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(event.message));
document.addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective));
for (const level of ["error", "warn"]) console[level] = (...words) => problems.push(words.join(" "));
</script>"""
OUTCOME = re.compile(r'<pre id="outcome">(.*?)</pre>', re.S)


def browse(folder, text, *flags):
    """Chromium's log for a page, and the resulting DOM."""
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    words = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={folder}",
    ]
    command = [CHROMIUM, *words, *(flags or ("--dump-dom",)), page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout


def acted(folder, text, script):
    """The result of a script that acts on the page; no other error may occur."""
    asked = f"""<script>
    const found = (() => {{ {script} }})();
    const out = document.createElement("pre");
    out.id = "outcome";
    out.textContent = JSON.stringify({{found, problems}});
    document.body.append(out);
    </script></body>"""
    dom = browse(folder, text.replace("<head>", "<head>" + WATCH, 1).replace("</body>", asked, 1))
    outcome = json.loads(html.unescape(OUTCOME.search(dom)[1]))
    assert outcome["problems"] == []
    return outcome["found"]


HELP = """
const rows = () => [...document.querySelectorAll(".scores tbody tr[data-row]")];
const labels = () => rows().map((row) => row.dataset.row);
const heads = [...document.querySelectorAll(".scores thead th")];
const head = (start) => heads.find((one) => one.textContent.startsWith(start));
const click = (one) => one.querySelector("button").click();
const shown = () => rows().filter((row) => !row.hidden).map((row) => row.dataset.row);
const filter = document.getElementById("filter");
const search = (text) => { filter.value = text; filter.dispatchEvent(new Event("input")); return shown(); };
"""
IN_ORDER = [
    "base",
    "A h=1",
    "A h=2",
    "D dropout=0.3",
    "decoding beam=1",
]  # by BLEU: the higher, the earlier


def test_the_page_renders_without_errors_and_sorts_by_any_column_in_both_directions(text, tmp_path):
    script = (
        HELP
        + """
    const seen = {plain: labels()};
    const bleu = head("BLEU");
    click(bleu); seen.up = labels(); seen.up_state = bleu.getAttribute("aria-sort");
    seen.announced = document.getElementById("announcement").textContent;
    click(bleu); seen.down = labels();
    click(bleu); seen.back = labels(); seen.none = bleu.getAttribute("aria-sort");
    click(head("row")); seen.names = labels();
    click(head("p")); seen.empty = labels();
    seen.focusable = heads.every((one) => one.querySelector("button").tabIndex === 0);
    return seen;
    """
    )
    seen = acted(tmp_path, text, script)
    assert seen["plain"] == seen["down"] == seen["back"] == IN_ORDER
    assert seen["up"] == IN_ORDER[::-1]
    assert (seen["up_state"], seen["none"]) == ("ascending", None)
    assert seen["announced"] == "Sorted by BLEU(test), ascending"
    assert seen["names"] == sorted(IN_ORDER, key=str.lower)
    assert seen["empty"][-1] in ("base", "D dropout=0.3")  # rows without a number come last
    assert seen["focusable"]


def test_a_row_is_hidden_everywhere_and_comes_back(text, tmp_path):
    script = (
        HELP
        + """
    const marked = () => [...document.querySelectorAll("[data-row='A h=1']")];
    const restore = document.getElementById("restore");
    const seen = {before: [restore.hidden, marked().length]};
    rows()[1].querySelector(".hide").click();
    seen.hidden = marked().every((one) => getComputedStyle(one).display === "none");
    seen.others = rows().filter((row) => !row.hidden).length;
    seen.offer = [restore.hidden, restore.textContent, document.activeElement === restore];
    restore.click();
    seen.after = [restore.hidden, marked().some((one) => one.hasAttribute("hidden"))];
    return seen;
    """
    )
    seen = acted(tmp_path, text, script)
    assert seen["before"][0] is True
    assert seen["before"][1] > 5
    assert (seen["hidden"], seen["others"]) == (True, 4)
    assert seen["offer"] == [False, "Show 1 hidden row", True]
    assert seen["after"] == [True, False]


def test_a_search_does_not_bring_back_a_row_that_was_hidden(text, tmp_path):
    script = (
        HELP
        + """
    rows()[1].querySelector("button.hide").click();
    const seen = {found: search("h="), cleared: search("")};
    document.getElementById("restore").click();
    seen.restored = search("");
    return seen;
    """
    )
    seen = acted(tmp_path, text, script)
    assert seen["found"] == ["A h=2"]
    assert seen["cleared"] == [row for row in IN_ORDER if row != "A h=1"]
    assert seen["restored"] == IN_ORDER


def test_rows_are_filtered_by_label_everywhere_and_come_back(text, tmp_path):
    script = (
        HELP
        + """
    const seen = {score: search("24.9 "), nothing: search("nothing like it"), filtered: search("H=")};
    const drawn = [...document.querySelectorAll("svg [data-row='D dropout=0.3']")];
    seen.drawn = drawn.length > 3 && drawn.every((one) => getComputedStyle(one).display === "none");
    seen.offer = document.getElementById("restore").textContent;
    document.getElementById("restore").click();
    seen.after = [filter.value, shown().length];
    return seen;
    """
    )
    seen = acted(tmp_path, text, script)
    assert (seen["score"], seen["nothing"]) == (["A h=1"], [])  # by any text of the table
    assert seen["filtered"] == ["A h=1", "A h=2"]
    assert seen["drawn"]
    assert seen["offer"] == "Show 3 hidden rows"
    assert seen["after"] == ["", 5]


def test_hovering_over_a_row_fades_the_others_in_all_figures(text, tmp_path):
    script = (
        HELP
        + """
    const over = (one) => one.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
    const solid = () => [...document.querySelectorAll("svg [data-row]")]
      .filter((one) => getComputedStyle(one).opacity !== "0.2").map((one) => one.dataset.row);
    const all = solid().length;
    over(rows()[1].cells[1]);
    const pointed = [...new Set(solid())];
    over(document.querySelector("h2"));
    return [pointed, solid().length === all];
    """
    )
    assert acted(tmp_path, text, script) == [["A h=1"], True]


def framed(folder, text, width, script):
    """The result of a script on the page in a window of this width, as `inner`."""
    outer = (
        f'<!DOCTYPE html><iframe style="width:{width}px;height:800px" '
        f'srcdoc="{html.escape(text)}"></iframe>'
    )
    asked = f"""<script>
    addEventListener("load", () => {{
      const inner = document.querySelector("iframe").contentDocument;
      const out = document.createElement("pre");
      out.id = "outcome";
      out.textContent = JSON.stringify((() => {{ {script} }})());
      document.body.append(out);
    }});
    </script>"""
    return json.loads(html.unescape(OUTCOME.search(browse(folder, outer + asked))[1]))


def test_differences_stand_beside_a_narrow_table_and_below_a_wide_one(text, tmp_path):
    script = """
    const box = (name) => inner.querySelector(`section.${name}`).getBoundingClientRect();
    const [table, differences] = [box("table"), box("differences")];
    return [differences.left >= table.right && differences.top === table.top, differences.right];
    """
    few = text.replace(
        "</style>", ".scores :is(th, td):nth-child(n+5) { display: none }</style>", 1
    )
    beside, right = framed(tmp_path, few, 1280, script)
    assert beside
    assert right > 1200  # nothing is left empty beside the table
    assert not framed(tmp_path, text, 1280, script)[0]


def test_labels_break_between_words_and_after_equals_signs_alone(text, tmp_path):
    script = """
    return [...inner.querySelectorAll(".scores tbody .label")].map((label) => {
      const range = inner.createRange(), tops = [];
      [...label.childNodes].filter((node) => node.nodeType === 3 && /\\w/.test(node.data)).forEach((part) => {
        part.data.trim().split(/ /).forEach((word) => {
          const at = part.data.indexOf(word);
          range.setStart(part, at); range.setEnd(part, at + word.length);
          tops.push(range.getClientRects().length);
        });
      });
      return Math.max(...tops);
    });
    """
    assert set(framed(tmp_path, text.replace("h=1", "label_smoothing=0.0"), 390, script)) == {1}


def test_values_are_shown_beside_the_pointer(text, tmp_path):
    script = """
    const tip = document.getElementById("tip");
    const over = (one) => one.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 50, clientY: 60}));
    const hidden = tip.hidden;
    over(document.querySelector("#differences").parentNode.querySelector("svg [data-row='A h=1']"));
    const difference = [tip.hidden, tip.textContent];
    over(document.querySelector("#curves").parentNode.querySelector("svg [data-row='A h=1']"));
    const curve = tip.textContent;
    over(document.querySelector("h2"));
    return {hidden, difference, curve, after: tip.hidden};
    """
    seen = acted(tmp_path, text, script)
    assert (seen["hidden"], seen["after"]) == (True, True)
    assert seen["difference"][0] is False
    assert seen["difference"][1].startswith("A h=1: -0.1 [")
    assert seen["curve"].startswith("A h=1, PPL: 19.20 at step 50, 10.20 at step 100")


def test_figures_are_saved_in_the_colors_of_light_mode(text, tmp_path):
    script = """
    const saved = [];
    HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); };
    document.querySelector("figure button.download").click();
    const buttons = document.querySelectorAll("button.download").length;
    return {saved, buttons, figures: document.querySelectorAll("figure > svg").length};
    """
    seen = acted(tmp_path, text, script)
    ((name, address),) = seen["saved"]
    assert name == "differences-bleu.svg"
    assert seen["buttons"] == 2 * seen["figures"]
    svg = unquote(address.partition(",")[2])
    root = ElementTree.fromstring(svg)
    assert {"width", "height"} <= root.attrib.keys()
    assert "var(" not in svg
    assert root[0].get("fill") == PALETTE["paper"]


def test_the_label_of_a_row_leads_to_its_runs(text, tmp_path):
    script = """
    const list = document.getElementById("runs");
    const before = list.open;
    location.hash = document.querySelector(".scores tr[data-row='A h=2'] a").getAttribute("href");
    dispatchEvent(new Event("hashchange"));
    return [before, list.open, document.querySelector(":target").dataset.row];
    """
    assert acted(tmp_path, text, script) == [False, True, "A h=2"]


def contrast(one, other):
    """The contrast of two colors `rgb(r, g, b)` (WCAG 2)."""

    def luminance(color):
        parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_and_lines_stand_out_from_the_paper(text, tmp_path, scheme):
    """4.5 to 1 for text and 3 to 1 for lines, as WCAG 2 (AA) asks."""
    dark = "(prefers-color-scheme: dark)"
    forced = text.replace(dark, "all" if scheme == "dark" else "not all")
    assert dark in text
    script = """
    const color = (name) => {
      const probe = document.createElement("i");
      probe.style.color = `var(--${name})`;
      document.body.append(probe);
      return getComputedStyle(probe).color;
    };
    const names = ["paper", "wash", "ink", "soft", "link", "worse", "better", "base"];
    const curves = [...Array(8).keys()].map((place) => `c${place}`);
    return Object.fromEntries([...names, ...curves].map((name) => [name, color(name)]));
    """
    found = acted(tmp_path, forced, script)
    paper = found.pop("paper")
    assert contrast(found.pop("wash"), found["ink"]) > 4.5
    text_colors = {
        name: contrast(paper, found[name]) for name in ("ink", "soft", "link", "worse", "better")
    }
    assert min(text_colors.values()) >= 4.5, text_colors
    lines = {name: contrast(paper, color) for name, color in found.items()}
    assert min(lines.values()) >= 3, lines


def test_the_page_fits_a_phone_without_horizontal_scrolling(text, tmp_path):
    script = """
    const letters = [...inner.querySelectorAll("svg text")].map((t) => t.getBoundingClientRect().height)
      .filter((height) => height > 0);  // of the axis that is shown
    const box = (one) => one.getBoundingClientRect();
    const [label, ...cells] = inner.querySelector(".scores tbody tr[data-row='A h=1']").cells;
    const seen = cells.filter((cell) => box(cell).left >= box(label).right - 1 && box(cell).right <= 390);
    return [inner.documentElement.scrollWidth, Math.min(...letters), seen.map((cell) => cell.textContent)];
    """
    width, smallest, seen = framed(tmp_path, text, 390, script)
    assert width <= 390
    assert seen[0].startswith("cannot tell (")  # beside the label, without scrolling
    assert seen[1] == "24.9 ±0.0"
    assert smallest >= 10  # CSS pixels: the letters of figures stay readable


def test_the_table_fits_a_window_and_its_further_columns_are_folded(text, tmp_path):
    script = """
    const table = inner.querySelector(".scores .wide"), further = inner.querySelector(".further");
    const heads = (one) => [...one.querySelectorAll("thead th")].map((head) => head.textContent);
    return [table.scrollWidth - table.clientWidth, heads(table), further.open, heads(further)];
    """
    over, heads, is_open, further = framed(tmp_path, text, 1280, script)
    assert (over, is_open) == (0, False)
    assert heads[:3] == ["row", "verdict", "BLEU(test)"]
    assert further[0] == "row"
    assert further[-1] == "FLOPs"
    assert not set(heads[1:]) & set(further[1:])


def test_names_beside_wide_cells_are_not_broken_into_letters_on_a_phone(text, tmp_path):
    script = """
    for (const folded of inner.querySelectorAll("details")) folded.open = true;
    const names = [...inner.querySelectorAll("main section:not(.table) tbody th[scope=row]")];
    return names.map((name) => Math.round(name.getBoundingClientRect().width));
    """
    widths = framed(tmp_path, text, 390, script)
    assert len(widths) > 20
    assert min(widths) >= 7 * 16  # CSS pixels


def test_the_page_can_be_printed(text, tmp_path):
    browse(tmp_path, text, f"--print-to-pdf={tmp_path / 'page.pdf'}", "--no-pdf-header-footer")
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF-")
    assert len(printed) > 10_000


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
def test_the_table_is_printed_whole_and_with_its_legend(text, whole, tmp_path):
    browse(tmp_path, text, f"--print-to-pdf={tmp_path / 'page.pdf'}", "--no-pdf-header-footer")
    done = subprocess.run(
        ["pdftotext", "-layout", tmp_path / "page.pdf", "-"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plain negative log-likelihood" in done.stdout.split("Differences from base")[0]
    (line,) = re.findall(r"^ *A h=1 .*", done.stdout, re.M)[:1]
    row = whole.table().rows[1]
    assert f"{row.scores['bleu'].mean:.1f} ±" in line
    assert "FLOPs" in done.stdout.split("Differences from base")[0]  # the last column
    assert "by training FLOPs" not in done.stdout  # buttons


def test_a_shadow_shows_on_which_side_a_wide_table_goes_on(text, tmp_path):
    """Three boxes 200 pixels wide with content that goes on to the right, on to the left, and that
    fits.
    """
    style = re.search(r"<style>.*?</style>", text, re.S)[0]
    box = '<div class="wide" style="position: absolute; left: 0; width: 200px; height: 60px; top: {}px">{}</div>'
    widths = (600, 600, 150)
    boxes = [
        box.format(90 * n, f'<div style="width: {width}px; height: 40px"></div>')
        for n, width in enumerate(widths)
    ]
    scroll = '<script>document.querySelectorAll(".wide")[1].scrollLeft = 400;</script>'
    shot = tmp_path / "shot.png"
    flags = (f"--screenshot={shot}", "--window-size=600,400", "--hide-scrollbars")
    browse(
        tmp_path,
        f"<!doctype html><html><head>{style}</head><body>{''.join(boxes)}{scroll}</body></html>",
        *flags,
    )
    light = imread(shot)[..., :3].mean(axis=2)
    rows = [light[90 * n + 20] for n in range(len(widths))]
    paper = rows[2][100]
    dark = [(row[1] < paper - 0.1, row[198] < paper - 0.1) for row in rows]
    assert dark == [(False, True), (True, False), (False, False)]
    assert all(row[100] == paper for row in rows)


def test_the_table_alone_scrolls_on_a_phone_and_its_heads_stand_above_their_cells(whole, tmp_path):
    script = """
    const table = inner.querySelector(".scores table"), width = inner.documentElement.scrollWidth;
    const side = (cell) => getComputedStyle(cell).textAlign.replace("start", "left");
    const heads = [...table.querySelectorAll("thead th")].map(side);
    const rows = [...table.querySelectorAll("tbody tr")].map((row) => [...row.cells].map(side));
    return [width, table.scrollWidth > width, heads, rows];
    """
    width, is_wide, heads, rows = framed(tmp_path, table_html(whole.table()), 390, script)
    assert width <= 390
    assert is_wide
    assert heads[0] == "left"
    assert heads.count("right") >= 3
    assert all(row == heads for row in rows)
