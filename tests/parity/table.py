"""All rows of the parity table."""

from tests.parity import decoding, formulas, gpt, llama, marian, t5, torch_nn

ROWS = tuple(
    row for oracle in (torch_nn, marian, t5, llama, gpt, formulas, decoding) for row in oracle.ROWS
)
