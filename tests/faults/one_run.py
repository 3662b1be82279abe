"""Faults of one run: kills, disk errors, damaged files, interruptions, lack of memory."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ablate.errors import Damaged, StoreError
from ablate.store import RunFolder, checkpoints
from ablate.store.records import Execution
from ablate.tasks import Translation
from ablate.training import Trainer
from tests.faults.inject import SPACE, Disk, Fault
from tests.faults.small import (
    FAILED,
    FITTING,
    STEPS,
    Came,
    Small,
    faulty,
    forked,
    resumed_at,
    saved_before,
)
from tests.faults.tally import Tally
from tests.records import a_provenance

CHANGES = (
    "create",
    "write",
    "rename",
    "link",
    "remove",
)  # between two of these, a kill leaves the same files


def kills(small: Small, quick: bool) -> Tally:
    """SIGKILL before every operation of a run and in the middle of every write, then the same
    command again.
    """
    tally, operations = Tally("kill -9 at each file operation of a run"), small.operations()
    for n in _points(operations, CHANGES if quick else (), each_kind=quick):
        run = small.lay_out()
        came = small.attempt(run, faulty(run, Fault("kill", n)))
        assert came.code == -9, (operations[n - 1], came)
        _again(small, run, tally, operations, n)
    return tally


def disk_errors(small: Small, quick: bool, what: str, lasting: bool) -> Tally:
    """A disk error at every operation, once or lasting, then the same command again on a good
    disk.
    """
    tally, operations = (
        Tally(f"{what} {'from the n-th operation on' if lasting else 'at the n-th operation'}"),
        [],
    )
    operations = small.operations()
    for n in _points(operations, SPACE if what == "ENOSPC" else (), each_kind=quick):
        run = small.lay_out()
        came = small.attempt(run, faulty(run, Fault(what, n, lasting)))
        _told(came, tally, operations[n - 1])
        _again(small, run, tally, operations, n)
    return tally


def _told(came: Came, tally: Tally, where: str) -> None:
    """Check that a failed run gives a reason of one line."""
    if came.code == FAILED and (not came.reason or "\n" in came.reason):
        tally.note(f"{where}: failed without a line: {came.reason!r}", lost=True)
    elif came.code not in (0, FAILED):
        tally.note(f"{where}: ended with {came.code}", lost=True)
    tally.count("went on" if came.code == 0 else "failed, resumable")


def _again(small: Small, run: RunFolder, tally: Tally, operations: list[str], n: int) -> None:
    """Run the same command again: it must resume at the newest whole checkpoint and give the
    expected files.
    """
    tally.tries += 1
    where, done = f"{n} {operations[n - 1]}", run.result.exists()
    came = small.attempt(run)
    if came.code != 0:
        tally.note(f"{where}: not done afterwards: {came}", lost=True)
        return
    if not done and resumed_at(run) < saved_before(operations, n):
        tally.note(
            f"{where}: resumed at {resumed_at(run)}, not {saved_before(operations, n)}", lost=True
        )
    _compare(small, run, tally, where)


def _compare(small: Small, run: RunFolder, tally: Tally, where: str) -> None:
    found = small.outcome(run)
    differing = sorted(
        n for n in {*found, *small.expected} if found.get(n) != small.expected.get(n)
    )
    if differing:
        tally.note(f"{where}: {differing}", wrong=True)


def _points(operations: list[str], kinds: tuple[str, ...], each_kind: bool) -> Iterator[int]:
    """Numbers of the operations of these kinds, or of all; with `each_kind` only the last of each
    name.
    """
    last = {re.sub(r"\d{9}", "STEP", name): n for n, name in enumerate(operations, 1)}
    for n, name in enumerate(operations, 1):
        if kinds and name.split()[0] not in kinds:
            continue
        if not each_kind or last[re.sub(r"\d{9}", "STEP", name)] == n:
            yield n


def publishing(small: Small, quick: bool) -> Tally:
    """SIGKILL at every operation of preparing a corpus and of publishing a table, then the same
    again.
    """
    tally = Tally("kill -9 while preparing, and publishing")
    table = small.table()
    for what, work, outcome in (
        ("prepare", small.prepare, small.prepared),
        ("publish", table.publish, table.published),
    ):
        folder = small.folder / what
        disk = Disk(str(folder / "trace"))
        names = small.noted(disk, lambda work=work, folder=folder: work(folder / "trace"))
        expected = outcome(folder / "trace")
        for n in _points(names, CHANGES, each_kind=quick):
            place = folder / str(n)
            code = forked(lambda work=work, place=place, n=n: work(place, Fault("kill", n)))
            tally.tries += 1
            if code != -9 or forked(lambda work=work, place=place: work(place)) != 0:
                tally.note(f"{what} {n} {names[n - 1]}: {code}, and not done afterwards", lost=True)
            elif outcome(place) != expected:
                found = outcome(place)
                unlike = sorted(x for x in {*found, *expected} if found.get(x) != expected.get(x))
                tally.note(f"{what} {n} {names[n - 1]}: {unlike}", wrong=True)
    return tally


def interruptions(small: Small, quick: bool) -> Tally:
    """A stop after each step, on and between evaluations and log lines, with dropout; then a resume
    to the end.
    """
    tally = Tally("stopped at step k, resumed")
    for step in range(1, STEPS):
        run, asked = small.lay_out(), iter(range(1, 10_000))
        came = small.attempt(run, stop=lambda asked=asked, step=step: next(asked) >= step)
        tally.tries += 1
        if came.code != 130 or small.attempt(run).code != 0 or resumed_at(run) != step:
            tally.note(f"step {step}: {came}, resumed at {resumed_at(run)}", lost=True)
        _compare(small, run, tally, f"step {step}")
    return tally


def takeovers(small: Small, quick: bool) -> Tally:
    """A worker is suspended in a step until another has taken over its lease and finished the run,
    then continues.
    """
    tally = Tally("stopped in step k beyond its lease, then woken")
    for step in (
        (3, STEPS) if quick else range(1, STEPS + 3)
    ):  # the last ones during evaluation and decoding
        run = small.lay_out()
        codes = small.taken_over(run, step)
        tally.tries += 1
        published = run.log.read_text().count(" published: ")
        if codes != [4, 0] or published != 1:
            tally.note(f"step {step}: exit {codes}, published {published} times", lost=True)
        _compare(small, run, tally, f"step {step}")
    return tally


def out_of_memory(small: Small, quick: bool) -> Tally:
    """Memory runs out in each step: the result equals that of smaller micro-batches from that step
    on.
    """
    tally = Tally("out of memory in step k")
    for step in (1, 6, STEPS) if quick else range(1, STEPS + 1):
        run, like = small.lay_out(), small.lay_out()
        came = small.attempt(run, lambda step=step: _scarce(step))
        asked = iter(range(1, 10_000))
        if step > 1:
            small.attempt(like, stop=lambda asked=asked, step=step: next(asked) >= step - 1)
            begun = like.read_execution()
            assert begun is not None
        else:
            begun = Execution(
                training_hash=small.corpus.training_hash,
                device="cpu",
                threads=1,
                micro_batch_tokens=FITTING,
                precision="fp32",
            )
            a_provenance(threads=1).write(like.provenance)
        begun.halved().write(like.execution)
        small.attempt(like)
        tally.tries += 1
        if came.code != 0:
            tally.note(f"step {step}: {came}", lost=True)
        elif (
            small.outcome(run) != small.outcome(like)
            or (result := run.read_result()) is None
            or result.halvings != 1
        ):
            tally.note(f"step {step}: not as with smaller micro-batches", wrong=True)
    return tally


def _scarce(step: int) -> None:
    """Let the second micro-batch of this step run out of memory, once."""
    real, accumulate = Translation.loss_terms, Trainer._accumulate
    current, seen, left = [0], [0], [True]

    def accumulate_noted(trainer: Trainer, *args: Any) -> int | None:
        current[0] = trainer.progress.step + 1
        return accumulate(trainer, *args)

    def loss_terms(task: Translation, *args: Any) -> tuple[torch.Tensor, int]:
        if current[0] == step and left:
            seen[0] += 1
            if seen[0] == 2:
                left.clear()
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return real(task, *args)

    Trainer._accumulate = accumulate_noted  # type: ignore[method-assign]
    Translation.loss_terms = loss_terms  # type: ignore[method-assign]


def corruption(small: Small, quick: bool) -> Tally:
    """Flipped bytes and truncated files: each is found by its hash, and the final files are the
    expected ones.
    """
    tally, draw = Tally("a byte flipped, or a file cut"), random.Random(1)
    begun, asked = small.lay_out(), iter(range(1, 10_000))
    assert small.attempt(begun, stop=lambda: next(asked) >= 10).code == 130
    newest, _ = checkpoints.newest(begun.checkpoints)
    assert newest is not None
    for path in (newest.weights, newest.state, newest.manifest):
        for where in _damages(path, draw, 40 if quick else 350):
            tally.tries += 1
            found, told = checkpoints.newest(begun.checkpoints)
            if found is None or found.step != 8 or len(told) != 1:
                tally.note(f"{path.name} {where}: {found and found.step}, {told}", wrong=True)
            aside = newest.manifest.with_name(f"{newest.manifest.name}.damaged")
            if aside.exists():
                aside.replace(newest.manifest)
    for path in [small.calm.result, *sorted(small.corpus.folder.iterdir())]:
        for where in _damages(path, draw, 10 if quick else 100):
            tally.tries += 1
            if _believed(small, path):
                tally.note(f"{path.name} {where}: believed", wrong=True)
    _damaged_runs(small, begun, newest, tally)
    return tally


def _damaged_runs(
    small: Small, begun: RunFolder, newest: checkpoints.Checkpoint, tally: Tally
) -> None:
    """Damage each file of a run, then execute the run."""
    ended = [small.calm.result, small.calm.execution]
    before = checkpoints.valid(begun.checkpoints)[-2]  # averaging needs its weights
    for path in (
        newest.weights, newest.state, newest.manifest, before.weights, before.state, before.manifest,
        begun.metrics, begun.execution, *ended,
    ):  # fmt: skip
        source = small.calm if path in ended else begun
        run = small.copy(source)
        target = run.path / path.relative_to(source.path)
        content = bytearray(target.read_bytes())
        content[len(content) // 2] ^= 1
        target.write_bytes(content)
        tally.tries += 1
        if small.attempt(run).code != 0:
            tally.note(f"{path.name}: not done", lost=True)
        for aside in run.path.rglob("*.damaged"):
            aside.unlink()
        _compare(small, run, tally, path.name)


def _believed(small: Small, path: Path) -> bool:
    try:
        if path == small.calm.result:
            small.calm.read_result()
        else:
            type(small.corpus)(small.corpus.folder).verify()
    except (Damaged, StoreError):
        return False
    return True


@contextmanager
def _changed(path: Path, content: bytes) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(whole)


def _damages(path: Path, draw: random.Random, flips: int) -> Iterator[str]:
    """Change one byte of the file at `flips` random places, then truncate it at every 4 KiB;
    restored afterwards.
    """
    whole = path.read_bytes()
    for at in sorted(draw.sample(range(len(whole)), min(flips, len(whole)))):
        with _changed(
            path, whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :]
        ):
            yield f"flipped at {at}"
    for length in range(0, len(whole), 4096):
        with _changed(path, whole[:length]):
            yield f"cut to {length}"


CASES: dict[str, Callable[[Small, bool], Tally]] = {
    "kills": kills,
    "publishing": publishing,
    "enospc": lambda small, quick: disk_errors(small, quick, "ENOSPC", lasting=False),
    "enospc-lasting": lambda small, quick: disk_errors(small, quick, "ENOSPC", lasting=True),
    "eio": lambda small, quick: disk_errors(small, quick, "EIO", lasting=False),
    "eio-lasting": lambda small, quick: disk_errors(small, quick, "EIO", lasting=True),
    "corruption": corruption,
    "interruptions": interruptions,
    "takeovers": takeovers,
    "memory": out_of_memory,
}
