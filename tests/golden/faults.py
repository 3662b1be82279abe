"""Transcripts of commands that are refused: each case is a study, or what follows the head of its
section, and the lines that `ablate plan` prints about it.

    == title of a section
    first lines of each of its studies
    --
    further lines of a study
    $ run STUDY --set h=3       the command, if it is another one
    ! 3:8: unknown field ...    what it prints; the place in the study without its file

`python -m tests.golden` writes the last lines anew: a case without them begins with `!` alone.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cli.inside import REFUSALS, inside

STUDY = "study.yaml"


def rewritten(transcript: str) -> str:
    """The transcript with the lines that the commands print now."""
    lines: list[str] = []
    head: list[str] = []
    case: list[str] = []
    for line in transcript.splitlines():
        if line.startswith("!"):
            if case:
                lines += [f"! {fault}" for fault in refused(head, case)]
            case = []
            continue
        lines.append(line)
        if line.startswith("== "):
            head = case = []
        elif line == "--":
            head, case = case, []
        elif line:
            case = [*case, line]
    assert not case, f"a case without an end: {case}"
    return "\n".join(lines) + "\n"


def refused(head: list[str], case: list[str]) -> list[str]:
    """The lines with which a command is refused; it prints and makes nothing else."""
    commands = [line for line in case if line.startswith("$ ")] or ["$ plan STUDY"]
    text = [*head, *(line for line in case if not line.startswith("$ "))]
    words = [STUDY if word == "STUDY" else word for word in shlex.split(commands[0])[1:]]
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        if text:
            Path(STUDY).write_text("\n".join([*text, ""]), encoding="utf-8")
        done = inside(*words)
        assert (done.code in REFUSALS, done.printed) == (True, ""), (case, done)
        assert [path.name for path in Path().iterdir()] == [STUDY] * bool(text), case
        lines = done.err.replace(f"{folder}/", "").splitlines()
        return [line.removeprefix(f"{STUDY}:") for line in lines]
