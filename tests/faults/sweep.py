"""The sweep: damage every file of a results root in every way, call every verb, and print the
outcomes.

python -m tests.faults.sweep                 every file x damage x verb; some ten minutes
python -m tests.faults.sweep --quick         a fixed part of it, which the tests run
python -m tests.faults.sweep result.json     only files whose path has one of these texts
python -m tests.faults.sweep sweep.yaml --verbs run status
                                             only these verbs

Each line of the table is a file, a damage, a verb and its outcome. The exit code is 1 if a verb
shows a traceback, if an output differs from the undamaged one without naming the fault, or if a
study is lost to one file of one run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ablate.errors import EXIT_INTERRUPTED
from ablate.store.files import read_json, write_json
from tests.cli.inside import Done, inside

STUDY = """\
study: sweep
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 8, d_ff: 16, h: 2, train_steps: 4, batch_tokens: 512, warmup_steps: 2, eval_every: 2,
       checkpoint_every: 2, beam: 1, max_extra_length: 2}
metrics: [bleu, chrf]
rows: {A: {each: {h: [1]}}}
"""
# Outcomes that must not be.
TRACEBACK, SILENT, LOST = "traceback", "silently wrong", "study lost"
FORMATS = ("rich", "markdown", "latex", "html", "csv", "json")
RUN = "run"
# Files with times of the clock: two trainings never write the same bytes.
TIMED = (
    "result.json",
    "progress.json",
    "log.txt",
    "metrics.jsonl",
    "provenance.json",
    "execution.json",
)
OF_STUDY = (
    "plan",
    "status",
    "report",
    "compare",
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
}


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None without one, as for a folder or a link loop."""
    return path.read_bytes() if path.is_file() else None


def _call(*words: object, stdin: bytes = b"") -> Done:
    """Run a command. A stop signal ends the sweep, because the output of a command that was stopped
    is no outcome.
    """
    done = inside(*words, stdin=stdin)
    if done.code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return done


class Sweep:
    """A finished study, of which every case damages a copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole = folder / "whole"
        self.whole.mkdir(parents=True)
        (self.whole / "sweep.yaml").write_text(STUDY)
        done = _call("run", self.whole / "sweep.yaml", "--results", self.whole / "results")
        assert done.code == 0, done.err
        plan = json.loads(self._call(self.whole, "plan", "--format", "json").out)
        self.run: str = plan["rows"][0]["runs"][0]["id"]  # of base
        self.verbs = self._verbs()
        self.expected = {
            verb: self._outcome(self.whole, verb) for verb in self.verbs if verb != RUN
        }

    def files(self) -> list[Path]:
        """The study file, and every file of base's run, of the corpora and of the published
        study.
        """
        root = self.whole / "results"
        found = [
            *(root / "runs" / self.run).rglob("*"),
            *(root / "corpora").rglob("*"),
            *(root / "sweep").rglob("*"),
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
            if verb in (verbs[0], RUN):  # a run mends what it finds
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(self.whole, copy, symlinks=True)
                DAMAGES[damage](copy / file)
            judged = self._judged_run(copy, file) if verb == RUN else self._judged(copy, file, verb)
            yield Outcome(str(file), damage, verb, judged)

    def _judged_run(self, copy: Path, file: Path) -> str:
        """The outcome of `ablate run`: it makes everything again that a table needs, or refuses and
        names the file.
        """
        damaged = _content(copy / file)
        try:
            done = self._call(copy, RUN)
            after = self._outcome(copy, "table csv")
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
            done = self._outcome(copy, verb)
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

    def _verbs(self) -> dict[str, tuple[str, ...]]:
        return {
            "plan": ("plan",),
            "status": ("status",),
            **{f"table {name}": ("table", "--format", name) for name in FORMATS},
            "report": ("report", "--out", "page.html"),
            "compare": ("compare", "base", "A h=1"),
            "verify": ("verify", "--stored"),
            "clean": ("clean",),
            "data show": ("data show",),
            "translate": ("translate",),
            "attention": ("attention", "--format", "json"),
            "export": ("export", "exported", "--to", "huggingface"),
            RUN: (RUN,),
        }

    def _outcome(self, folder: Path, verb: str) -> Done:
        words = self.verbs[verb]
        if verb in ("translate", "attention", "export"):
            arguments: list[object] = [words[0], self.run, *words[1:]]
            if verb == "export":
                shutil.rmtree(folder / "exported", ignore_errors=True)
                arguments[2] = folder / "exported"
            done = _call(*arguments, "--results", folder / "results", stdin=b"a dog\n")
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


def sweep(
    cases: Sweep, quick: bool = False, texts: tuple[str, ...] = (), only: tuple[str, ...] = ()
) -> Iterator[Outcome]:
    """Yield every outcome.

    Args:
        cases: the finished study.
        quick: a fixed part of the sweep.
        texts: only files whose path has one of them.
        only: only these verbs.
    """
    wanted = texts or (QUICK_FILES if quick else ("",))
    verbs = [
        verb for verb in cases.verbs if verb in (only or (QUICK_VERBS if quick else cases.verbs))
    ]
    for file in cases.files():
        if any(text in str(file) for text in wanted):
            for damage in QUICK_DAMAGES if quick else DAMAGES:
                yield from cases.damaged(file, damage, verbs)


def main() -> int:
    """Print every outcome and the counts; 1 if one must not be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.sweep", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="a fixed part, which the tests run")
    parser.add_argument("files", nargs="*", help="only files whose path has one of these texts")
    parser.add_argument("--verbs", nargs="+", default=[], help="only these verbs")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for one in sweep(
            Sweep(Path(folder)), arguments.quick, tuple(arguments.files), tuple(arguments.verbs)
        ):
            counts[one.outcome.partition(":")[0]] += 1
            print(" | ".join(one), flush=True)
    print()
    for outcome, count in sorted(counts.items()):
        print(f"{outcome}: {count}")
    return int(any(counts[outcome] for outcome in (TRACEBACK, SILENT, LOST)))


if __name__ == "__main__":
    sys.exit(main())
