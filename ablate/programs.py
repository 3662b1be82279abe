"""`ablate.run`: a study from Python, as `ablate run` executes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

import pandas as pd

from ablate import errors
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED, AblateError, Interrupted
from ablate.frames import check_type, load, named_arguments, results_folder, selection
from ablate.stdio import echo


@named_arguments()
def run(
    study: str | PathLike[str],
    results: str | PathLike[str] | None = None,
    *,
    rows: str | Sequence[str] | None = (),
    seeds: str | Sequence[int] | None = None,
    set: Mapping[str, Any] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    jobs: int | None = None,
    budget: str | None = None,
    retry_failed: bool = False,
    on_event: Callable[[dict[str, Any]], object] | None = None,
) -> pd.DataFrame:
    """Train what is missing of a study on this machine, and load its results.

    A new process of `ablate run` executes the runs. An interrupt saves them, and the same call
    resumes.

    Args:
        study: the study file.
        results: the results root; None for the folder in the variable ABLATE_RESULTS, or else
            `results`.
        rows: train only base and these rows: groups, labels or patterns, as with `--rows`.
        seeds: seeds such as `[1, 2]` or `"1-3"`, instead of the seeds in the study.
        set: values of fields of base or data, as with `--set`: `{"dropout": 0.2}`.
        device: device of the runs; `"auto"` uses a GPU if there is one.
        jobs: number of runs at the same time; None for one on each GPU, or on each core.
        budget: time limit such as `"2h"`: only the part of the study that fits is executed.
        retry_failed: execute failed runs again.
        on_event: called with each event (docs/programs.md), such as `{"event": "metrics", "run":
            "3f2a...", "step": 100, "loss": 3.2}`.

    Returns:
        The frame of `load`, one line for each selected row. A warning says that runs have failed.

    Raises:
        StudyError, UsageError, DataError, MachineError, StoreError: as `ablate run` refuses.
        Interrupted: a signal came; everything is saved.

    Example:
        >>> rows = ablate.run("studies/quickstart.yaml", on_event=print)
        >>> rows["verdict"]
    """
    check_type("study", study, (str, os.PathLike), "the path of a study file")
    check_type("on_event", on_event or print, Callable, "a function of one event")
    check_type("retry_failed", retry_failed, bool, "True or False")
    root = results_folder(results)
    options = {"--results": root, "--device": device, "--jobs": jobs, "--budget": budget}
    words = [sys.executable, "-m", "ablate", "run", os.fspath(study), "--format", "json", "--quiet"]
    words += [f"{name}={value}" for name, value in options.items() if value is not None]
    words += ["--retry-failed"] * retry_failed
    selected = selection(rows, seeds, set)
    words += [f"--set={text}" for text in selected.overrides]
    words += [f"--rows={text}" for text in selected.rows]
    words += [] if selected.seeds is None else [f"--seeds={selected.seeds}"]
    refusal: dict[str, Any] = {}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as notes:
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=notes, encoding="utf-8"
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    event = json.loads(line)
                    refusal = event if event["event"] == "error" else refusal
                    if on_event is not None:
                        on_event(event)
            except BaseException:  # an interrupt of a notebook reaches this process alone
                process.terminate()
                raise
        if refusal:
            raise _error_of(refusal)
        notes.seek(0)
        for line in notes:
            echo(line.rstrip(), err=True)
    if process.returncode == EXIT_INTERRUPTED:
        raise Interrupted
    if process.returncode == EXIT_RUN_FAILED:
        warnings.warn("not every run is done; `ablate status` says why", stacklevel=3)
    elif process.returncode:
        raise RuntimeError(f"ablate run ended with exit code {process.returncode}")
    return load(study, root, rows=rows, seeds=seeds, set=set)


def _error_of(event: dict[str, Any]) -> AblateError:
    """The error of an event."""
    faults = []
    for content in event["faults"]:
        details = ("problem", "subject", "given", "allowed", "meant", "code", "remedy")
        known = {name: content[name] for name in details if name in content}
        if "place" in content:
            known["place"] = errors.Mark.parse(content["place"])
        known["fields"] = tuple(content.get("fields", ()))
        known["choices"] = tuple(content.get("choices", ()))
        known["causes"] = tuple(map(errors.Mark, content.get("causes", ())))
        faults.append(errors.Fault(**known))
    kinds = (errors.StudyError, errors.UsageError, errors.DataError, errors.MachineError)
    by_code = {kind.code: kind for kind in (*kinds, errors.StoreError, errors.Damaged)}
    return by_code.get(event["error"], errors.AblateError)(*faults)
