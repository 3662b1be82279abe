"""The results of a study as pandas frames by row, by run and by step, for notebooks and CSV."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # `import ablate` loads this module, and loads no library
    from collections.abc import Sequence

    import pandas as pd

    from ablate.analysis.results import RunResult
    from ablate.analysis.table import Table, TableRow
    from ablate.store import Results, RunFolder
    from ablate.store.records import Result
    from ablate.study import Row, Study

PER = ("row", "run", "step")


def load(
    study: str | PathLike[str],
    results: str | PathLike[str] = "results",
    per: Literal["row", "run", "step"] = "row",
    against: Literal["paper"] | None = None,
) -> pd.DataFrame:
    """Load the results that a study has so far.

    Missing scores of finished runs are computed first and cached, as by `ablate table`. Missing
    numbers are NaN or NA. A warning says if the results root does not exist.

    Args:
        study: the study file.
        results: the results root.
        per: what one line of the frame is.

            - `"row"`: one line for each row of the study, indexed by `row`: `group`, the settings
              of Table 3 and all others that some row changes, `changed` (all changes as text),
              `params` (trained parameters), `steps` (optimizer steps), `state`; for each metric
              such as `ppl` the mean, sample standard deviation and number of seeds (`ppl_mean`,
              `ppl_std`, `ppl_n`), the same of its difference from base paired by seed
              (`delta_ppl_mean`, ...) with 95 % interval and p values, and the verdict
              (`verdict_ppl`); `seconds` and `tokens_per_second` of one training, means over seeds;
              `flops` of one training.
            - `"run"`: one line for each row and seed, indexed by `row` and `seed`: `group`, `run`
              (id), `state`, the settings of Table 3 and all others that some row changes, `params`,
              `steps`, one column for each metric, `seconds`, `tokens_per_second`.
            - `"step"`: learning curves, indexed by `row`, `seed` and `step`: `run` (id), `tokens`
              (trained on so far), `loss` (training loss in nats per token, mean since the previous
              log line), `lr` (learning rate), `dev_perplexity`. Rows that differ only in decoding
              have the same curves.
        against: with `"paper"` and `per="row"`, also the paper's scores for the same change
            (`paper_ppl`, ...).

    Returns:
        The frame. `frame.attrs` has the name of the study (`study`) and, by row or run, how each
        metric was computed (`signatures`).

    Raises:
        ValueError: `per` or `against` has another value, or `against` is used with other lines than
            rows.
        StudyError: the study file has errors.
        StoreError: a result is damaged, or cannot be read.

    Example:
        >>> import ablate
        >>> rows = ablate.load("studies/quickstart.yaml")
        >>> rows[["ppl_mean", "ppl_std", "delta_ppl_mean"]]
        >>> runs = ablate.load("studies/quickstart.yaml", per="run")
        >>> runs.groupby("n_heads")["ppl"].mean()
        >>> steps = ablate.load("studies/quickstart.yaml", per="step")
        >>> steps["dev_perplexity"].loc["base"].dropna()
    """
    if per not in PER:
        raise ValueError(f'per={per!r} is not one of "row", "run" and "step"')
    if against not in (None, "paper") or (against and per != "row"):
        raise ValueError(f'against={against!r}: only "paper" is allowed, with per="row"')
    from ablate.analysis.missing_scores import score_missing
    from ablate.analysis.results import read_runs, signatures
    from ablate.analysis.settle import settle
    from ablate.analysis.table import table_of
    from ablate.store import Results
    from ablate.study import read_study

    if not Path(results).is_dir():
        warnings.warn(
            f"the results root {results} does not exist: no run has a result", stacklevel=2
        )
    root = Results(Path(results))
    content = settle(read_study(Path(study)), root)
    if per == "step":
        frame = steps_frame(content, root)
        frame.attrs["study"] = content.name
        return frame
    faults = score_missing(content, root)
    for fault in faults:
        warnings.warn(fault, stacklevel=2)
    if per == "row":
        table = table_of(content, root)
        frame = rows_frame(table, with_paper=against is not None)
        others = _varied_settings(content).drop(columns=frame.columns, errors="ignore")
        for name in others:
            frame.insert(list(frame).index("changed"), name, others[name])
        frame.attrs |= {"study": content.name, "signatures": table.signatures}
    else:
        runs = read_runs(content, root)
        frame = runs_frame(content, runs)
        frame.attrs |= {"study": content.name, "signatures": signatures(content, runs)}
    return frame


def rows_frame(table: Table, timed: bool = True, with_paper: bool = True) -> pd.DataFrame:
    """One line for each row, indexed by its label; see `load`.

    Args:
        table: of the study.
        timed: whether to add measured times.
        with_paper: whether to add the paper's scores, if the paper has a table for the task.
    """
    import pandas as pd

    from ablate.analysis.results import aggregate, differences, measured_metrics
    from ablate.analysis.table import paper_metrics

    scores, deltas = (
        aggregate(table.results),
        aggregate(differences(table.results, {row.row.label: row.row.base for row in table.rows})),
    )
    lines = [
        {
            "row": row.row.label,
            "group": row.row.group,
            **_settings(row.row),
            "params": row.params,
            "steps": row.steps,
            "state": row.state,
        }
        for row in table.rows
    ]
    # Int64 is pandas' integer with missing values; int64 would turn into floats.
    parts: list[Any] = [
        pd.DataFrame(lines).astype({"train_steps": "Int64", "steps": "Int64"}).set_index("row")
    ]
    index = parts[0].index
    for name in measured_metrics(table.study):
        parts.append(scores.xs(name, level="metric").add_prefix(f"{name}_"))
        parts.append(deltas.xs(name, level="metric").add_prefix(f"delta_{name}_"))
        verdicts = pd.DataFrame([_verdict(row, name) for row in table.rows], index=index)
        # A column of nothing but None would keep the type object.
        parts.append(
            verdicts.astype({column: float for column in verdicts if column != f"verdict_{name}"})
        )
    paper = paper_metrics(table) if with_paper else []
    numbers = [_cost(row, timed) | _paper(row, paper) for row in table.rows]
    parts.append(pd.DataFrame(numbers, index=index, dtype=float))
    frame: pd.DataFrame = pd.concat(parts, axis=1)
    return frame


def runs_frame(study: Study, runs: Sequence[RunResult]) -> pd.DataFrame:
    """One line for each row and seed, which are its index; see `load`."""
    import pandas as pd

    from ablate.analysis.results import measured_metrics, results_frame

    metrics, index = measured_metrics(study), ["row", "seed"]
    tidy = results_frame(runs, metrics)
    values = tidy.pivot(index=index, columns="metric", values="value")
    lines = [{"row": row.label, **_settings(row)} for row in study.rows]
    settings = pd.DataFrame(lines).astype({"train_steps": "Int64"}).set_index("row")
    settings = settings.join(
        _varied_settings(study).drop(columns=settings.columns, errors="ignore")
    )
    runs_only = tidy.drop_duplicates(index).set_index(index)
    columns = [
        "group",
        "run",
        "state",
        *settings,
        "params",
        "steps",
        *metrics,
        "seconds",
        "tokens_per_second",
    ]
    frame: pd.DataFrame = runs_only.join(settings, on="row").join(values)[columns]
    return frame


def _varied_settings(study: Study) -> pd.DataFrame:
    """The value of every field that some row changes, for each row."""
    import pandas as pd

    varied = dict.fromkeys(name for row in study.rows for name in row.changed)
    lines = [{name: getattr(row.config, name) for name in varied} for row in study.rows]
    settings: pd.DataFrame = pd.DataFrame(
        lines, index=pd.Index([row.label for row in study.rows], name="row")
    )
    return settings


def steps_frame(study: Study, results: Results) -> pd.DataFrame:
    """Learning curves: one line for each row, seed and logged step, which are its index; see
    `load`.
    """
    import pandas as pd

    from ablate.analysis.results import log_of
    from ablate.store.records import MetricsLine

    index = ["row", "seed", "step"]
    lines = [
        {"row": row.label, "seed": run.seed, "run": run.id, **line.model_dump()}
        for row in study.rows
        for run in study.runs_of(row)
        for line in log_of(results.run(run.id), _result(results.run(run.id)))
    ]
    numbers: dict[str, Any] = {
        "seed": "int64",
        "step": "int64",
        "tokens": "int64",
        "loss": float,
        "lr": float,
        "dev_perplexity": float,
    }
    logged = pd.DataFrame(lines, columns=["row", "seed", "run", *MetricsLine.model_fields]).astype(
        numbers
    )
    # The loss and the evaluation of one step are separate lines of the log; first() merges what is
    # not NaN.
    frame: pd.DataFrame = logged.groupby(index, sort=False).first()
    return frame


def _settings(row: Row) -> dict[str, Any]:
    """The settings of Table 3, and all changes as one text, as a study writes them."""
    from ablate.config.plugins import without_digest
    from ablate.config.resolve import SETTINGS
    from ablate.formatting import setting_text

    names = [one.field for one in SETTINGS if one.field != "train_steps"]
    changed = " ".join(
        f"{name}={without_digest(setting_text(value))}" for name, value in row.changed.items()
    )
    return {
        **{name: getattr(row.config, name) for name in (*names, "train_steps")},
        "changed": changed,
    }


def _verdict(row: TableRow, metric: str) -> dict[str, Any]:
    """Interval, p values and verdict of the difference from base; the paired bootstrap for metrics
    of predictions.
    """
    from ablate.analysis.scores import verdict_json
    from ablate.config.metrics import PPL

    verdict = verdict_json(row.verdicts[metric]) if metric in row.verdicts else {}
    parts = ("low", "high", "p", "p_holm", "p_adjusted", "minimum_detectable")
    columns = {f"delta_{metric}_{part}": verdict.get(part) for part in parts}
    columns[f"verdict_{metric}"] = verdict.get("verdict")
    if metric != PPL.name:
        bootstrap = verdict.get("test_set") or {}
        columns |= {
            f"test_set_{metric}_{part}": bootstrap.get(part)
            for part in ("low", "high", "p", "p_holm")
        }
    return columns


def _cost(row: TableRow, timed: bool) -> dict[str, Any]:
    times = {"seconds": row.cost.seconds.mean, "tokens_per_second": row.cost.tokens_per_second.mean}
    return {**(times if timed else {}), "flops": row.cost.flops}


def _paper(row: TableRow, metrics: Sequence[str]) -> dict[str, Any]:
    return {f"paper_{name}": row.paper.scores.get(name) if row.paper else None for name in metrics}


def _result(folder: RunFolder) -> Result | None:
    """The result of a run; None if there is none, or if it cannot be read."""
    from ablate.store.status import damage_of

    return None if damage_of(folder) else folder.read_result()
