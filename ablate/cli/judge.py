"""`ablate judge`: verdicts on scores that other code has measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ablate.cli.arguments import argument, flag, option
from ablate.cli.formats import Format, Legend, Wide, print_table
from ablate.errors import (
    Fault,
    Mark,
    UsageError,
    ineffective_option,
    not_a_choice,
    not_allowed,
    refuse_output,
    wrong_option,
)
from ablate.judging.files import read_lines
from ablate.judging.judge import judged, read_stream, stream_json, stream_lines
from ablate.stdio import echo, print_json

EXAMPLE = "ablate judge scores.csv --base baseline --out report.html"

Names = list[str] | None


def command(
    files: Annotated[
        list[Path],
        argument(
            "FILE",
            "CSV or JSON with row, seed, metric, value; or an export of W&B, MLflow, TensorBoard. "
            "Several files, such as tb/*.csv, are one table.",
        ),
    ],
    base: Annotated[
        str | None, option("Row with which all other rows are compared.", "ROW")
    ] = None,
    metric: Annotated[
        Names, option("First the metric of the verdicts, then metrics to show. Repeatable.", "NAME")
    ] = None,
    lower_is_better: Annotated[
        Names, option("Metric whose lower values are better. Repeatable.", "NAME")
    ] = None,
    higher_is_better: Annotated[
        Names, option("Metric whose higher values are better. Repeatable.", "NAME")
    ] = None,
    margin: Annotated[
        float | None,
        option(
            "Margin in the metric of the verdicts: a row within it is as good as base.", "NUMBER"
        ),
    ] = None,
    by: Annotated[Names, option("A column that names rows. Repeatable.", "COLUMN")] = None,
    stream: Annotated[
        bool, flag("--stream", "FILE is a log of changes that were tried one after another.")
    ] = False,
    format: Format = "text",
    wide: Wide = False,
    legend: Legend = False,
    out: Annotated[Path | None, option("Also write an HTML page with the figure.", "FILE")] = None,
) -> None:
    """Judge scores of other code: verdicts, table and page, as for a study."""
    if margin is not None and not 0 < margin < math.inf:
        raise wrong_option("--margin", not_allowed(f"{margin:g}", "above 0 and finite"))
    if stream:
        given = {
            "--out": out is not None,
            "--wide": wide,
            "--legend": legend,
            "--margin": margin is not None,
        }
        for option_name in filter(given.get, given):
            problem = "has no effect with --stream, which prints decisions"
            raise ineffective_option(option_name, problem)
        if format not in ("text", "json"):
            fault = not_a_choice(format, ("text", "json"))
            raise wrong_option("--format", replace(fault, remedy="--stream prints decisions"))
        if len(metric or ()) > 1:
            problem = "has two values, and --stream decides by one metric"
            raise wrong_option("--metric", Fault(problem, remedy="give one metric"))
    directions = dict.fromkeys(lower_is_better or (), False)
    contradictory = directions.keys() & set(higher_is_better or ())
    if contradictory:
        name = min(contradictory)
        fault = Fault("is in --higher-is-better, too", given=f'"{name}"', remedy="give one")
        raise wrong_option("--lower-is-better", fault)
    directions |= dict.fromkeys(higher_is_better or (), True)
    if out is not None:
        refuse_output("--out", out, filter(Path.exists, files))
    lines = read_lines(files)  # outside of `try`: its errors name the file already
    try:
        if stream:
            decided = read_stream(lines, base, directions, metric or (), by or ())
            if format == "json":
                print_json(stream_json(*decided))
            else:
                echo("\n".join(stream_lines(*decided)))
            return
        table = judged(
            lines,
            files[0].stem,
            base=base,
            directions=directions,
            metrics=metric or (),
            row_columns=by or (),
            margin=margin,
        )
    except UsageError as error:
        place = Mark(", ".join(map(str, files)))
        faults = [fault if fault.place else fault.located(place) for fault in error.faults]
        raise UsageError(*faults) from None
    if out is not None:
        from ablate.page.page import scores_page
        from ablate.store.files import write_bytes

        write_bytes(out, scores_page(table).encode(), durable=False)
    print_table(table, format, wide, legend)
    if out is not None:
        echo(f"Wrote {out}", err=True)
