"""Tables of a terminal are never wider than it, and never cut a label."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from ablate.report.terminal import plain_table


@pytest.mark.parametrize("width", [30, 80, 140])
def test_labels_that_do_not_fit_continue_below(width):
    labels = [
        f"warm-up positional_encoding={kind} warmup_steps={steps}" for kind in ("rope", "none") for steps in (1, 2)
    ]
    table = plain_table("row", "+seed", "state")
    for label in labels:
        table.add_row(Text(label), "1", "interrupted")
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(table)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in out.getvalue()
    start = lines[0].index("seed")
    assert "".join(line[:start] for line in lines[2:]).replace(" ", "") == "".join(labels).replace(" ", "")
