"""A study's results as a pandas frame, for notebooks."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd


def load(results: str | PathLike[str], study: str | PathLike[str], per: Literal["row", "run"] = "row") -> pd.DataFrame:
    """What a study has so far, as `ablate table` shows it.

    Args:
        results: the results root.
        study: the study's YAML file.
        per: `row` for a line a row, with means, differences from base and verdicts, indexed by the row's label;
            `run` for a line a row and seed, with its scores, indexed by both.

    Returns:
        A frame. Its `attrs` hold the study's name, and each metric's signatures.

    Raises:
        StudyError: the study is at fault.
        StoreError: a result is damaged.
    """
    if per not in ("row", "run"):
        raise ValueError(f'per is "row" or "run", not {per!r}')
    import pandas as pd

    from ablate.report.render import flat, flat_runs
    from ablate.report.scoring import score_missing
    from ablate.report.table import paper_metrics, table_of
    from ablate.store import Results
    from ablate.study import read_study

    content, root = read_study(Path(study)), Results(Path(results))
    score_missing(content, root)
    table = table_of(content, root)
    if per == "row":
        frame: pd.DataFrame = pd.DataFrame([flat(row, paper_metrics(table)) for row in table.rows]).set_index("row")
    else:
        frame = pd.DataFrame([run for row in table.rows for run in flat_runs(row)]).set_index(["row", "seed"])
    frame.attrs |= {"study": content.name, "signatures": table.signatures}
    return frame
