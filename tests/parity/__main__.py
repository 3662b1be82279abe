"""Print the parity table; exit with 1 if a difference is above the limit.

`python -m tests.parity`
"""

import sys

import torch
import transformers

from tests.parity.row import LIMIT, Row
from tests.parity.table import ROWS

HEADINGS = ("oracle", "compared", "numbers", "their rms", "largest difference")


def line(row: Row) -> tuple[tuple[str, ...], bool]:
    """The cells of a row, and whether its difference is within the limit."""
    found = row.compare()
    cells = (f"{found.numbers:,}", f"{found.rms:.2f}", f"{found.difference:.1e}")
    return (row.oracle, row.what, *cells), found.holds


def main() -> int:
    lines = [line(row) for row in ROWS]
    cells = [HEADINGS, *(cells for cells, _ in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (
            f"{cell:{side}{width}}" for cell, side, width in zip(row, "<<>>>", widths, strict=True)
        )
        print(*padded, sep="  ")
    held = sum(holds for _, holds in lines)
    print(
        "\nOur logits are computed twice: for all positions at once, and token by token with a "
        "cache."
    )
    by = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{held} of {len(lines)} within {LIMIT:.0e}; {by}")
    return 0 if held == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
