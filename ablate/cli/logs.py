"""`ablate status --logs`: the last lines of the logs of pilots, or of the runs of a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.analysis.choices import runs_with_choices
from ablate.cli.output import Format
from ablate.stdio import echo, print_json
from ablate.store import Results
from ablate.store.jobs import jobs_of
from ablate.store.status import last_lines
from ablate.study import Study
from ablate.study.select import find_row


def show_logs(study: Study, results: Results, row: str | None, count: int, format: Format) -> None:
    """Print the last `count` lines of each log, of the runs of a row or of all pilots."""
    logs = []
    found = _pilot_logs(study, results) if row is None else _row_logs(study, results, row)
    for title, log, facts in found:
        if lines := last_lines(log, count):
            logs.append({**facts, "file": str(log), "lines": lines})
            if format == "text":
                echo(f"{title}: {log}")
                echo("\n".join(f"  {line}" for line in lines))
    if format == "json":
        print_json({"study": study.name, "logs": logs})
    elif not logs:
        line = f"{study.name}: no logs yet under {results.root}"
        if row is None and not jobs_of(results, study.name):
            command = results.command("status", study.path, "ROW", "--logs")
            line = f"{study.name}: no pilots; `{command}` shows a row's"
        echo(line)


def _row_logs(
    study: Study, results: Results, name: str
) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yield a title, the path of the log, and the keys for JSON, of each run of a row."""
    runs = runs_with_choices(study, results)
    row = find_row(runs, name)
    for run in runs.of(row):
        facts = {"row": row.label, "seed": run.seed, "run": run.id}
        yield f"{row.label} seed {run.seed}", results.run(run.id).log, facts


def _pilot_logs(study: Study, results: Results) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yield a title, the path of the log, and the keys for JSON, of each pilot."""
    for job in jobs_of(results, study.name):
        files = [log for log in job.logs.glob("*.log") if log.is_file()]
        for log in sorted(files, key=lambda log: log.stat().st_mtime):
            yield f"job {job.id}", log, {"job": job.id}
