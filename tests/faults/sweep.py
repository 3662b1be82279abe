"""The sweep: damage every file of a results root in every way, call every verb, and print the
outcomes.

python -m tests.faults.sweep                 every file x damage x verb; some ten minutes
python -m tests.faults.sweep --quick         a fixed part of it, which the tests run
python -m tests.faults.sweep --task parsing  of another task
python -m tests.faults.sweep result.json     only files whose path has one of these texts
python -m tests.faults.sweep sweep.yaml --verbs run status
                                             only these verbs

Each line of the table is a file, a damage, a verb and its outcome. The exit code is 1 if a verb
shows a traceback or never ends, if an output differs from the undamaged one without naming the fault, or if a
study is lost to one file of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import ablate
from ablate.errors import EXIT_INTERRUPTED, AblateError
from ablate.store.files import read_json, write_json
from tests.cli.inside import Done, inside

STUDY = """\
study: sweep
task: {task}
data: {{{data}}}
base: {{N: 1, d_model: 8, d_ff: 16, h: 2, train_steps: 4, batch_tokens: 512, warmup_steps: 2, eval_every: 2,
       checkpoint_every: 2, {base}}}
{more}rows: {{A: {{each: {{h: [1]}}}}}}
"""
SEARCH = "beam: 1, max_extra_length: 2"
STUDIES = {
    "translation": STUDY.format(
        task="translation",
        data="corpus: toy, vocab_size: 200",
        base=SEARCH,
        more="metrics: [bleu, chrf]\n",
    ),
    "language-model": STUDY.format(
        task="language-model",
        data="corpus: toy",
        base="context: 16, generated_tokens: 4, norm_position: pre",
        more="",
    ),
    "parsing": STUDY.format(task="parsing", data="corpus: toy, leaves: words", base=SEARCH, more=""),
    "masked-lm": STUDY.format(task="masked-lm", data="corpus: toy", base="context: 16", more=""),
    "synthetic": STUDY.format(
        task="synthetic",
        data="corpus: recall, train: 64, dev: 16, test: 16",
        base="max_positions: 32",
        more="",
    ),
}  # fmt: skip
# Commands that read a run, by task.
OF_RUN = {
    "translation": ("predict", "attention", "export"),
    "language-model": ("predict", "attention", "export"),
    "parsing": ("predict", "attention"),
    "masked-lm": ("predict", "attention"),
    "synthetic": (),
}
HANG = 60  # processor-independent seconds after which a command counts as hanging
# Outcomes that must not be.
TRACEBACK, SILENT, LOST, HANGS = "traceback", "silently wrong", "study lost", "hangs"
BAD = (TRACEBACK, SILENT, LOST, HANGS)
FORMATS = ("text", "markdown", "latex", "html", "csv", "json")
RUN = "run"
CHANGING = (RUN, "work", "cluster stop")  # verbs that write; each gets a copy of its own
LOADED = ("row", "run", "step")
# Damages that are another state: a study from a pipe is waited for, as by `cat`; a job without
# job.json is not yet submitted, one without closed.json is open, and one without pilots has none.
STATES = (
    ("sweep.yaml", "pipe"),
    ("jobs/*/job.json", "missing"),
    ("jobs/*/closed.json", "missing"),
    ("jobs/*/pilots/*.json", "missing"),
)
# Files with times of the clock: two trainings never write the same bytes.
TIMED = (
    "result.json", "progress.json", "log.txt", "metrics.jsonl", "provenance.json",
    "execution.json",
)  # fmt: skip
OF_STUDY = (
    "plan",
    "status",
    "report",
    "compare",
    "logs",
    *(f"table {name}" for name in FORMATS),
)  # verbs that show all runs
QUICK_FILES = ("result.json", "metrics.jsonl", "translations/", "test.target.txt", "corpus.json")
QUICK_DAMAGES = ("other content", "folder")
QUICK_VERBS = ("status", "table csv", "compare")
# How an output may say that something is not as it was.
WORDS = (
    "damaged", "missing", "cannot be read", "interrupted", "pending", "failed", "not prepared", "no run",
    "not finished",
    "not a prepared corpus", "leftover",
)  # fmt: skip


class Outcome(NamedTuple):
    """One cell of the sweep."""

    file: str
    damage: str
    verb: str
    outcome: str


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)


def _other_content(path: Path) -> None:
    """Other content in the right syntax: without the hash that was written."""
    raw = path.read_bytes()
    digits = bytes.maketrans(b"0123456789aeiou", b"1234567890eioua")
    path.write_bytes(raw.translate(digits))


def _other_version(path: Path) -> None:
    """What a later version would have written: a JSON file with a higher format, or a field that
    this one lacks.
    """
    if path.suffix == ".json":
        content = read_json(path) if path.parent.name != "sweep" else json.loads(path.read_text())
        assert content is not None
        write_json(
            path, {**content, "format": 1 + int(content.get("format", 0)), "of_a_later_version": 1}
        )
    elif path.suffix == ".jsonl":
        lines = (
            json.dumps({**json.loads(line), "of_a_later_version": 1})
            for line in path.read_text().splitlines()
        )
        path.write_text("".join(f"{line}\n" for line in lines))
    elif path.suffix == ".yaml":
        path.write_text(path.read_text() + "of_a_later_version: 1\n")
    else:
        path.write_bytes(b"version 2\n" + path.read_bytes())


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 3),
    "other type": lambda path: path.write_text("[1, 2]\n"),
    "deeply nested": lambda path: path.write_text("[" * 100_000),
    "other content": _other_content,
    "other version": _other_version,
    "folder": _folder,
    "link loop": _link,
    "pipe": _pipe,
}


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None without one, as for a folder or a link loop."""
    return path.read_bytes() if path.is_file() else None


class Hangs(Exception):
    """A command has not ended in time."""


@contextmanager
def _in_time() -> Iterator[None]:
    """Interrupt a command that waits for ever, such as for the other end of a pipe."""

    def interrupt(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(HANG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _load(study: Path, root: Path) -> Done:
    """`ablate.load` in its three forms; what it warns of is its standard error."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            frames = [ablate.load(study, root, per).to_csv() for per in LOADED]
        except AblateError as error:
            return Done(error.exit_code, "", "\n".join(error.lines))
    return Done(0, "\n".join(frames), "\n".join(str(warning.message) for warning in warned))


def _call(*words: object, stdin: bytes = b"") -> Done:
    """Run a command. A stop signal ends the sweep, because the output of a command that was stopped
    is no outcome.
    """
    done = inside(*words, stdin=stdin)
    if done.code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return done


class Sweep:
    """A finished study, trained by a pilot, of which every case damages a copy.

    Args:
        folder: for the study and its copies.
        task: of the study.
        verbs: only these; all of the task if there are none.
    """

    def __init__(self, folder: Path, task: str = "translation", verbs: Sequence[str] = ()) -> None:
        self.folder, self.task = folder, task
        self.whole = folder / "whole"
        self.whole.mkdir(parents=True)
        (self.whole / "sweep.yaml").write_text(STUDIES[task])
        done = self._call(
            self.whole, RUN, "--on", "manual", "--workers", 1, "--device", "cpu", "--detach"
        )
        assert done.code == 0, done.err
        (job,) = (self.whole / "results/sweep/jobs").iterdir()
        self.job = job.relative_to(self.whole)
        for done in (_call("work", "--job", job), self._call(self.whole, RUN)):
            assert done.code == 0, done.err
        plan = json.loads(self._call(self.whole, "plan", "--format", "json").out)
        self.run: str = plan["rows"][0]["runs"][0]["id"]  # of base
        self.words = self._words()
        self.verbs = [verb for verb in self.words if verb in (verbs or self.words)]
        self.expected = {}
        for verb in self.words:
            if verb != RUN and verb in ("table csv", *self.verbs):
                folder = self._copy() if verb in CHANGING else self.whole
                self.expected[verb] = self._outcome(folder, verb)
        # A command that refuses the undamaged study would show nothing about damages.
        assert {verb: done.err for verb, done in self.expected.items() if done.code} == {}

    def _copy(self) -> Path:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.whole, copy, symlinks=True)
        return copy

    def files(self) -> list[Path]:
        """The study file, and every file of base's run, of the corpora and of the published
        study.
        """
        root = self.whole / "results"
        found = [
            *(root / "runs" / self.run).rglob("*"),
            *(root / "corpora").rglob("*"),
            *(root / "sweep").rglob("*"),
            *(root / ".origins").rglob("*"),
            *(root / ".judged").rglob("*"),
        ]
        files = [
            path.relative_to(self.whole)
            for path in found
            if path.is_file() and path.name != "lease"
        ]
        return [Path("sweep.yaml"), *sorted(files)]

    def damaged(self, file: Path, damage: str, verbs: list[str]) -> Iterator[Outcome]:
        """Damage one file of a copy, and yield the outcome of each verb."""
        copy = self.folder / "copy"
        for verb in verbs:
            if verb in (verbs[0], *CHANGING):  # a run mends what it finds
                DAMAGES[damage](self._copy() / file)
            judged = self._judged_run(copy, file) if verb == RUN else self._judged(copy, file, verb)
            yield Outcome(str(file), damage, verb, judged)

    def _judged_run(self, copy: Path, file: Path) -> str:
        """The outcome of `ablate run`: it makes everything again that a table needs, or refuses and
        names the file.
        """
        damaged = _content(copy / file)
        try:
            with _in_time():
                done = self._call(copy, RUN)
                after = self._outcome(copy, "table csv")
        except Hangs:
            return HANGS
        except Exception as error:
            return f"{TRACEBACK}: {type(error).__name__}: {str(error)[:100]}"
        if done.code == 0:
            if after.out != self.expected["table csv"].out:
                return SILENT
            found = _content(copy / file)
            if found == _content(self.whole / file) or (found != damaged and file.name in TIMED):
                return "healed"
            # Readers of the published study know no hash: it must be written again.
            return "not needed" if found == damaged and file.parent.name != "sweep" else SILENT
        return (
            f"refused ({done.code})"
            if file.name in done.err + done.out or str(file.parent) in done.err
            else SILENT
        )

    def _judged(self, copy: Path, file: Path, verb: str) -> str:
        try:
            with _in_time():
                done = self._outcome(copy, verb)
        except Hangs:
            return HANGS
        except Exception as error:  # what a user would see as a traceback
            return f"{TRACEBACK}: {type(error).__name__}: {str(error)[:100]}"
        expected = self.expected[verb]
        if done.code == 0 and done.out == expected.out:
            return "same"
        if (
            done.code
            and verb.partition(" ")[0] in {name.partition(" ")[0] for name in OF_STUDY}
            and "runs" in file.parts
        ):
            return f"{LOST}: {done.err.strip()[:100]}"
        said = f"{done.out}\n{done.err}"
        before = f"{expected.out}\n{expected.err}"
        if any(said.count(word) > before.count(word) for word in (*WORDS, file.name)):
            return "said" if done.code == 0 else f"refused ({done.code})"
        return f"refused ({done.code})" if done.code and done.err else SILENT

    def _words(self) -> dict[str, tuple[str, ...]]:
        """The words of each verb's command."""
        return {
            "plan": ("plan",),
            "status": ("status",),
            **{f"table {name}": ("table", "--format", name) for name in FORMATS},
            "report": ("report", "--out", "page.html"),
            "compare": ("compare", "base", "A h=1"),
            "verify": ("verify", "--stored"),
            "clean": ("clean",),
            "data show": ("data show",),
            **{name: (name,) for name in OF_RUN[self.task]},
            "load": (),
            "logs": ("status", "--logs"),
            "publish": ("publish",),
            **{name: (name,) for name in CHANGING},
        }

    def _outcome(self, folder: Path, verb: str) -> Done:
        words = self.words[verb]
        root, out = folder / "results", folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        if verb in OF_RUN[self.task]:
            extra = {
                "export": ["--out", out, "--to", "huggingface"],
                "attention": ["--text", "a dog", "--format", "json"],
            }.get(verb, [])
            stdin = b"a dog <mask>\n" if self.task == "masked-lm" else b"a dog\n"
            done = _call(verb, self.run, *extra, "--results", root, stdin=stdin)
        elif verb == "load":
            done = _load(folder / "sweep.yaml", root)
        elif verb == "work":
            done = _call("work", "--job", folder / self.job)
            done = Done(done.code, re.sub(r"(?m)^\S+ \S+ ", "", done.out), done.err)
        elif verb == "publish":
            done = self._call(folder, "publish", "--out", out)
            if done.code == 0:
                done = Done(done.code, done.out + (out / "table.json").read_text(), done.err)
        elif verb == "report":
            done = self._call(folder, "report", "--out", folder / "page.html")
            if done.code == 0:
                done = Done(done.code, done.out + (folder / "page.html").read_text(), done.err)
        else:
            done = self._call(folder, *words)
        return Done(
            done.code,
            done.out.replace(str(folder), "FOLDER"),
            done.err.replace(str(folder), "FOLDER"),
        )

    def _call(self, folder: Path, verb: str, *words: object) -> Done:
        return _call(*verb.split(), folder / "sweep.yaml", *words, "--results", folder / "results")


def sweep(cases: Sweep, quick: bool = False, texts: Sequence[str] = ()) -> Iterator[Outcome]:
    """Yield every outcome.

    Args:
        cases: the finished study.
        quick: a fixed part of the sweep.
        texts: only files whose path has one of them.
    """
    wanted = texts or (QUICK_FILES if quick else ("",))
    for file in cases.files():
        if any(text in str(file) for text in wanted):
            for damage in QUICK_DAMAGES if quick else DAMAGES:
                if any(file.match(place) and damage == state for place, state in STATES):
                    continue
                yield from cases.damaged(file, damage, cases.verbs)


def main() -> int:
    """Print every outcome and the counts; 1 if one must not be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.sweep", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="a fixed part, which the tests run")
    parser.add_argument("files", nargs="*", help="only files whose path has one of these texts")
    parser.add_argument("--task", choices=STUDIES, default="translation")
    parser.add_argument("--verbs", nargs="+", default=[], help="only these verbs")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    verbs = arguments.verbs or (QUICK_VERBS if arguments.quick else ())
    with tempfile.TemporaryDirectory() as folder:
        cases = Sweep(Path(folder), arguments.task, verbs)
        for one in sweep(cases, arguments.quick, arguments.files):
            counts[one.outcome.partition(":")[0]] += 1
            print(" | ".join(one), flush=True)
    print()
    for outcome, count in sorted(counts.items()):
        print(f"{outcome}: {count}")
    return int(any(counts[outcome] for outcome in BAD))


if __name__ == "__main__":
    sys.exit(main())
