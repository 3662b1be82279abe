"""The results of a study as pandas data frames, by row, by run and by step."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from ablate.analysis.choices import runs_with_choices
from ablate.analysis.missing_scores import read_scored_runs
from ablate.analysis.outcome import scored_outcome_of
from ablate.analysis.results import RunResult, log_of, measured_metrics, signatures
from ablate.analysis.text_changes import refuse_other_text
from ablate.config.resolve import SETTINGS
from ablate.errors import (
    AblateError,
    Fault,
    Mark,
    StoreError,
    UsageError,
    ineffective_option,
    not_a_choice,
    not_allowed,
    wrong_option,
)
from ablate.fields import value_text
from ablate.formatting import settings_text
from ablate.judging.columns import ROW, numbered_lines, plain_name
from ablate.judging.judge import judged
from ablate.store import Results
from ablate.store.records import MetricsLine
from ablate.study import Runs, Selection, read_study
from ablate.table.conclusion import conclusion
from ablate.table.render import rows_frame
from ablate.table.table import Table

PER = ("row", "run", "step")


@contextmanager
def named_arguments() -> Iterator[None]:
    """Errors of a command in this context name arguments of Python: `seeds`, not `--seeds`.

    A function that this decorates warns with `stacklevel=3` to name the line of its caller.
    """
    try:
        yield
    except AblateError as error:
        faults = [replace(fault, code=fault.code or error.code) for fault in error.faults]
        raise type(error)(*map(_with_arguments, faults)) from None


def _with_arguments(fault: Fault) -> Fault:
    """The fault with arguments of Python in the place of options."""
    place = fault.place and _argument(fault.place)
    causes = tuple(map(_argument, fault.causes))
    return replace(fault, place=place, causes=causes, given=fault.given.removeprefix("--"))


def _argument(option: Mark) -> Mark:
    return replace(option, source=option.source.removeprefix("--"))


@named_arguments()
def load(
    study: str | PathLike[str],
    results: str | PathLike[str] | None = None,
    per: Literal["row", "run", "step"] = "row",
    against: Literal["paper"] | None = None,
    *,
    rows: str | Sequence[str] | None = (),
    seeds: str | Sequence[int] | None = None,
    set: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Load the results of a study.

    Missing scores of finished runs are computed first and cached, as by `ablate table`. The numbers
    of unfinished runs are NaN or NA. Warns if the results root does not exist or has no result of
    the study, or if `flops` uses assumed lengths because a corpus is damaged.

    Args:
        study: the study file.
        results: the results root; None for the folder in the variable ABLATE_RESULTS, or else
            `results`.
        per: the content of a line of the frame.

            - `"row"`: one line for each row of the study, indexed by `row`: `group`, the settings
              of Table 3 and all others that some row changes, `changed` (all changes as text),
              `verdict` (by the metrics of `judge`), `params` (trained parameters), `steps`
              (optimizer steps), `state`; for each metric such as `ppl` the mean, sample standard
              deviation and number of seeds (`ppl_mean`, `ppl_std`, `ppl_n`), the same three of the
              difference from base paired by seed (`delta_ppl_mean`, ...) with 95 % interval and p
              values, and the verdict (`verdict_ppl`); `seconds` and `tokens_per_second` of one
              training, means over seeds; `flops` of one training; docs/report.md has each column.
            - `"run"`: one line for each row and seed, indexed by `row` and `seed`: `group`, `run`
              (id), `state`, the settings of Table 3 and all others that some row changes, `params`,
              `steps`, one column for each metric, `seconds`, `tokens_per_second`.
            - `"step"`: learning curves, indexed by `row`, `seed` and `step`: `run` (id), `tokens`
              (trained on so far), `loss` (training loss in nats per token, mean since the previous
              log line), `lr` (learning rate), `dev_perplexity`. Rows that differ only in decoding
              have the same curves.
        against: with `"paper"` and `per="row"`, also the paper's scores for the same change
            (`paper_ppl`, ...).
        rows: only base and these rows: groups, labels or patterns, as with `--rows`.
        seeds: seeds such as `[1, 2]` or `"1-3"`, instead of the seeds in the study.
        set: values of fields of base or data, as with `--set`: `{"dropout": 0.2}`.

    Returns:
        The frame. `frame.attrs` has the name of the study (`study`), the metrics of the verdicts
        (`judge`), by row or run how each metric was computed (`signatures`), and by row the metrics
        whose standard deviations, differences and intervals are natural logarithms (`log_scale`):
        their means are geometric means, in the metric's own unit.

    Raises:
        StudyError: the study file or `set` has errors.
        UsageError: an argument has a value that is not allowed.
        StoreError: a file of the results is damaged or cannot be read, new scores cannot be
            written, or the results were made with other text.

    Example:
        >>> import ablate
        >>> rows = ablate.load("studies/quickstart.yaml")
        >>> rows[["ppl_mean", "ppl_std", "delta_ppl_mean"]]
        >>> runs = ablate.load("studies/quickstart.yaml", per="run")
        >>> runs.groupby("n_heads")["ppl"].mean()
        >>> steps = ablate.load("studies/quickstart.yaml", per="step")
        >>> steps["dev_perplexity"].loc["base"].dropna()
    """
    check_type("study", study, (str, PathLike), "the path of a study file")
    if per not in PER:
        raise wrong_option("per", not_a_choice(str(per), PER))
    if against not in (None, "paper"):
        raise wrong_option("against", not_a_choice(str(against), ("paper",)))
    if against and per != "row":
        raise ineffective_option("against", f'has no effect with per="{per}"')
    folder = results_folder(results)
    root = Results(folder)
    planned = runs_with_choices(read_study(Path(study), selection(rows, seeds, set)), root)
    if not folder.is_dir():
        warnings.warn(
            f"the results root {folder} does not exist: no run has a result", stacklevel=3
        )
    content = planned.study
    for remark in refuse_other_text(planned, root):
        warnings.warn(remark, stacklevel=3)
    attrs: dict[str, Any] = {"study": content.name, "judge": list(content.metrics.judged)}
    if per == "step":
        frame = steps_frame(planned, root)
        if frame.empty and folder.is_dir():
            warnings.warn(f"no run of this study has a log in {folder}", stacklevel=3)
        frame.attrs |= attrs
        return frame
    if per == "row":
        outcome = scored_outcome_of(planned, root)
        _refuse(outcome.unscored, outcome.runs)
        if without := _without_result(outcome.runs, folder):
            warnings.warn(without, stacklevel=3)
        for fault in outcome.experiment.notes.faults:
            # Such as a corpus whose lengths `flops` needs.
            warnings.warn(fault, stacklevel=3)
        frame = rows_frame(outcome.table, with_paper=against is not None)
        for name in _varied(planned):
            if name not in frame:
                values = [getattr(row.config, name) for row in planned.rows]
                frame.insert(list(frame).index("changed"), name, values)
        attrs["log_scale"] = _log_scale(outcome.table)
        frame = frame.copy()  # in one block: pandas warns of frames made column by column
        frame.attrs |= attrs | {"signatures": outcome.experiment.signatures}
    else:
        runs, faults = read_scored_runs(planned, root)
        _refuse(faults, runs)
        if without := _without_result(runs, folder):
            warnings.warn(without, stacklevel=3)
        frame = runs_frame(planned, runs)
        frame.attrs |= attrs | {"signatures": signatures(planned, runs)}
    return frame


def _without_result(runs: Iterable[RunResult], folder: Path) -> str:
    """A warning if no run has a result in an existing results root; otherwise empty."""
    if not folder.is_dir() or any(run.result for run in runs):
        return ""
    return f"no run of this study has a result in {folder}"


def selection(
    rows: str | Sequence[str] | None,
    seeds: str | Sequence[int] | None,
    settings: Mapping[str, Any] | None,
) -> Selection:
    """The part of a study that the arguments `rows`, `seeds` and `set` select."""
    patterns = [rows] if isinstance(rows, str) else () if rows is None else rows
    check_type("rows", patterns, Iterable, 'a list of names, such as ["A", "D*"]')
    if seeds is not None and not isinstance(seeds, str):
        check_type("seeds", seeds, Iterable, 'a list such as [1, 2], or "1-3"')
        seeds = ",".join(map(str, seeds))
    settings = {} if settings is None else settings
    check_type("set", settings, Mapping, 'a dictionary, such as {"dropout": 0.2}')
    # JSON is YAML, so a text stays a text: `{"norm": "1e3"}`.
    overrides = [f"{name}={json.dumps(value, default=_plain)}" for name, value in settings.items()]
    return Selection(overrides, [str(name) for name in patterns], seeds)


def check_type(argument: str, value: object, kind: Any, allowed: str) -> None:
    """Refuse an argument of another type."""
    if not isinstance(value, kind):
        raise wrong_option(argument, not_allowed(value_text(value), allowed))


def _plain(value: Any) -> Any:
    """A value of a study for JSON: the number of NumPy or torch, or the text of a path."""
    return value.item() if hasattr(value, "item") else str(value)


def results_folder(results: str | PathLike[str] | None) -> Path:
    """The results root of an argument, or else the default of `--results`."""
    check_type("results", results or "", (str, PathLike), "the path of a folder")
    folder = Path(results or os.environ.get("ABLATE_RESULTS") or Results().root)
    if folder.is_file():
        raise wrong_option("results", Fault("is a file", given=str(folder), remedy="give a folder"))
    return folder


@named_arguments()
def judge(
    frame: pd.DataFrame,
    *,
    base: str | None = None,
    metrics: str | Sequence[str] | None = (),
    by: str | Sequence[str] | None = (),
    more_is_better: Mapping[str, bool] | None = None,
    margin: float | None = None,
) -> pd.DataFrame:
    """Judge the scores of other code, as `ablate judge` does.

    Args:
        frame: a line for each score, with the columns `row`, `seed`, `metric` and `value`; or a
            line for each run, with a column for each metric. An index with names is read as
            columns. See docs/judge.md.
        base: label of base; None for the row named base, baseline or control.
        metrics: the metric of the verdicts, then other metrics to show; may be empty if there is
            only one.
        by: the column that names a row, or several; empty for `row` or a similar column.
        more_is_better: by metric, for metrics whose name does not imply it.
        margin: margin of equivalence in the metric of the verdicts; None for no margin.

    Returns:
        The frame of `load` with `per="row"`, without settings and cost. `frame.attrs` has the
        metrics of the verdicts (`judge`), the `conclusion` in sentences, and `remarks` on the power
        and on lines that were left out or interpreted.

    Raises:
        UsageError: `frame` is no data frame, a column is missing, or the scores cannot be compared.

    Example:
        >>> scores = pd.read_csv("scores.csv")
        >>> ablate.judge(scores, base="adamw")[["delta_loss_mean", "verdict_loss"]]
    """
    columns = _names(by)
    _check_arguments(frame, more_is_better or {})
    if isinstance(margin, bool):
        raise wrong_option("margin", not_allowed(value_text(margin), "a number"))
    check_type("margin", margin or 0, (int, float), "a number")
    frame = _with_index(frame, columns)
    table = judged(
        numbered_lines(frame.to_dict("records")),
        "scores",
        base=None if base is None else str(base),  # rows may be numbers in a frame
        directions=more_is_better or {},
        metrics=_names(metrics),
        row_columns=columns,
        margin=margin,
    )
    judgments = rows_frame(table)
    judgments.attrs = {
        "judge": [metric.name for metric in table.judged_metrics],
        "log_scale": _log_scale(table),
        "conclusion": conclusion(table),
        "remarks": list(table.experiment.notes.remarks),
    }
    return judgments


def _log_scale(table: Table) -> list[str]:
    """The metrics whose standard deviations and differences are natural logarithms."""
    return [metric.name for metric in table.shown_metrics if metric.is_log]


def _names(names: object) -> list[str]:
    """The names in an argument that takes a name, which may be a number, or several names."""
    if names is None:
        return []
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [str(names)]
    return list(map(str, names))


def _check_arguments(frame: pd.DataFrame, more_is_better: Mapping[str, bool]) -> None:
    """Refuse arguments of other types, which would be misread."""
    if not isinstance(frame, pd.DataFrame):
        problem, remedy = f"a {type(frame).__name__} is no data frame", "use pandas.DataFrame"
        if isinstance(frame, (str, PathLike)):
            problem, remedy = "a path is no data frame", f"use pandas.read_csv({str(frame)!r})"
        elif isinstance(frame, pd.Series):
            remedy = 'use .reset_index(name="loss"), with the name of the metric'
        raise _frame_error(problem, remedy)
    if frame.empty:
        raise wrong_option("frame", "has no lines of scores")
    check_type("more_is_better", more_is_better, Mapping, 'a dictionary such as {"acc": True}')
    for name, value in more_is_better.items():
        if not pd.api.types.is_bool(value):  # also of numpy
            fault = not_allowed(value_text(value), "True or False")
            raise wrong_option("more_is_better", fault.about(f'"{name}"'))
    if frame.columns.nlevels > 1:
        remedy = "give a line for each run, with one name for each column"
        raise _frame_error("the columns have names of several levels", remedy)
    duplicates = frame.columns[frame.columns.duplicated()]
    if len(duplicates):
        remedy = "rename or drop one of them"
        raise _frame_error(f'two columns are named "{duplicates[0]}"', remedy)


def _frame_error(problem: str, remedy: str) -> UsageError:
    return wrong_option("frame", Fault(problem, remedy=remedy))


def _with_index(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The frame with its index as columns, if the index has names.

    Raises:
        UsageError: the index has the name of a column, or may have the rows and has no name.
    """
    names = [name for name in frame.index.names if name is not None]
    if names:
        for name in names:
            if name in frame.columns:
                problem = f'the index and a column are named "{name}"'
                remedy = "rename one of them, or drop the index by frame.reset_index(drop=True)"
                raise _frame_error(problem, remedy)
        return frame.reset_index()
    columns = {plain_name(str(column)) for column in frame.columns}
    if not by and not columns & set(ROW) and not pd.api.types.is_numeric_dtype(frame.index):
        remedy = 'if it has the rows, use frame.rename_axis("row")'
        if frame.index.nlevels > 1:
            remedy = 'if it has the rows and seeds, use frame.rename_axis(["row", "seed"])'
        problem = "no column names the row, and the index has no name"
        raise _frame_error(problem, remedy)
    return frame


def _refuse(faults: Sequence[str], runs: Sequence[RunResult]) -> None:
    """Refuse damaged results, because means over the other runs would be wrong."""
    lines: dict[str, None] = {}
    for run in runs:
        lines |= dict.fromkeys(run.damage)
    lines |= dict.fromkeys(faults)
    if lines:
        raise StoreError(*lines)


def runs_frame(planned: Runs, runs: Sequence[RunResult]) -> pd.DataFrame:
    """A data frame with a line for each row and seed; see `load`."""
    metrics = [metric.name for metric in measured_metrics(planned.study)]
    varied = _varied(planned)
    lines: list[dict[str, Any]] = []
    for run in runs:
        line = {"row": run.row.label, "seed": run.run.seed, "group": run.row.group}
        line |= {"run": run.run.id, "state": run.state}
        for setting in SETTINGS:
            line[setting.field] = getattr(run.row.config, setting.field)
        line["changed"] = settings_text(run.row.changed, " ")
        for name in varied:
            line[name] = getattr(run.row.config, name)
        line |= {"params": run.params, "steps": run.steps}
        for name in metrics:
            line[name] = run.scores[name].value if name in run.scores else None
        lines.append(line | {"seconds": run.seconds, "tokens_per_second": run.tokens_per_second})
    numbers = dict.fromkeys((*metrics, "seconds", "tokens_per_second"), "float64")
    numbers |= {"train_steps": "Int64", "steps": "Int64"}
    frame: pd.DataFrame = pd.DataFrame(lines).astype(numbers).set_index(["row", "seed"])
    return frame


def _varied(planned: Runs) -> list[str]:
    """Every field that some row changes."""
    names: dict[str, None] = {}
    for row in planned.rows:
        names |= dict.fromkeys(row.changed)
    return list(names)


def steps_frame(planned: Runs, results: Results) -> pd.DataFrame:
    """A data frame with a line for each row, seed and step; see `load`."""
    index = ["row", "seed", "step"]
    lines = []
    for row in planned.rows:
        for run in planned.of(row):
            folder = results.run(run.id)
            names = {"row": row.label, "seed": run.seed, "run": run.id}
            for line in log_of(folder, folder.read_result()):
                lines.append({**names, **line.model_dump()})
    columns = ["row", "seed", "run", *MetricsLine.model_fields]
    numbers: dict[str, Any] = dict.fromkeys(("seed", "step", "tokens"), "int64")
    numbers |= dict.fromkeys(("loss", "lr", "dev_perplexity"), float)
    logged = pd.DataFrame(lines, columns=columns).astype(numbers)
    # The loss and the evaluation of a step are separate lines of the log, which first() merges.
    frame: pd.DataFrame = logged.groupby(index, sort=False).first()
    return frame
