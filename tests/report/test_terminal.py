"""Tables of a terminal are never wider than it, and never cut a label."""

import io
import re
from contextlib import redirect_stdout
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from ablate.report.terminal import Label, plain_table, print_wide, right, text_console

CELLS = st.text("abc 0.5=_:[]日é\x1b", max_size=12).map(str.strip)
STYLED = st.builds(Text, CELLS.filter(str.isprintable), st.sampled_from(["", "dim", "red"]))
HEADS = st.lists(
    st.builds(str.__add__, st.sampled_from(["", "+"]), CELLS.filter(bool)), min_size=1, max_size=4
)
TABLES = HEADS.flatmap(
    lambda heads: st.tuples(
        st.just(heads), st.lists(st.tuples(*[CELLS | STYLED for _ in heads]), min_size=1)
    )
)


def printed_wide(heads, rows, is_terminal, limit):
    """The lines of a table without styles; one of more than `limit` rows is not laid out by
    rich.
    """
    table = plain_table(*heads)
    for row in rows:
        table.add_row(*(cell.copy() if isinstance(cell, Text) else cell for cell in row))
    out = io.StringIO()
    out.isatty = lambda: is_terminal
    with (
        patch("ablate.report.terminal.LARGE", limit),
        redirect_stdout(out),
        patch.dict("os.environ", COLUMNS="200"),
    ):
        print_wide(table)
    return [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("is_terminal", [False, True])
@given(content=TABLES)
@settings(max_examples=60)
def test_a_long_table_looks_as_rich_prints_it(is_terminal, content):
    assert printed_wide(*content, is_terminal, limit=0) == printed_wide(
        *content, is_terminal, limit=10**6
    )


def test_a_long_table_that_does_not_fit_is_left_to_rich(monkeypatch):
    monkeypatch.setattr("os.environ", {"COLUMNS": "20", "TERM": "dumb"})
    content = ["row"], [("x " * 30,)]
    assert max(map(len, printed_wide(*content, True, limit=0))) <= 200
    assert (
        len(printed_wide(["a", "b"], [("x\ny", "z")], False, limit=0)) == 4
    )  # a cell of two lines


@pytest.mark.parametrize("width", [30, 80, 140])
def test_labels_that_do_not_fit_continue_below(width):
    labels = [
        f"warm-up positional_encoding={kind} warmup_steps={steps}"
        for kind in ("rope", "none")
        for steps in (1, 2)
    ]
    table = plain_table("row", right("seed"), "state")
    for label in labels:
        table.add_row(Text(label), "1", "interrupted")
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(table)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in out.getvalue()
    start = lines[0].index("seed")
    assert "".join(line[:start] for line in lines[2:]).replace(" ", "") == "".join(labels).replace(
        " ", ""
    )


@pytest.mark.parametrize("width", [60, 70, 80])
def test_a_label_is_broken_between_its_settings(width):
    table = plain_table("row", right("params"), right("FLOPs per step"), right("steps"), "runs")
    label = "E positional_encoding=learned warmup_steps=200"
    table.add_row(Label(label), "385,408", "1.50 G", "450", "1 done")
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(table)
    lines = out.getvalue().splitlines()[2:]
    pieces = [re.split(r" {2,}", line.strip())[0] for line in lines]
    assert len(pieces) > 1
    assert " ".join(pieces).replace("= ", "=").replace("_ ", "_") == label

    assert set(" ".join(pieces).replace("=", " ").replace("_", " ").split()) == set(
        re.split(r"[ =_]", label)
    )
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_long_line_is_broken_between_words_in_a_terminal_and_whole_in_a_pipe(is_terminal):
    line = "if it does not fit, the batch is split further, with the same result. " * 3
    out = io.StringIO()
    out.isatty = lambda: is_terminal
    with redirect_stdout(out), patch.dict("os.environ", COLUMNS="80"):
        text_console().print(line.strip())
    lines = out.getvalue().splitlines()
    assert " ".join(text.strip() for text in lines) == line.strip()
    assert max(map(len, lines)) <= 80 if is_terminal else len(lines) == 1
