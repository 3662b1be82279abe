"""One small run, carried out as a worker does, in a process of its own that is forked and so starts at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sacrebleu  # noqa: F401  # loaded here, so that no process of ours loads it again
import torch
import torch._dynamo  # which the optimizer loads

from ablate.config import DecodingConfig, resolve_row
from ablate.config.identity import NOT_IDENTITY, decoding_id
from ablate.runner import execution, worker
from ablate.runner.unit import Unit
from ablate.store import RunFolder
from ablate.store.files import write_json
from ablate.training import loop
from tests.data.small import Files
from tests.faults.inject import Disk, Fault, install

ID = "0123456789ab"
STEPS = 12
ROW = {
    "n_layers": 1, "d_model": 14, "d_ff": 11, "n_heads": 3, "d_k": 5, "d_v": 7, "max_positions": 120, "dropout": 0.3,
    "train_steps": STEPS, "batch_tokens": 200, "warmup_steps": 5, "eval_every": 5, "checkpoint_every": 4,
    "beam": 1, "max_extra_length": 2, "average_checkpoints": 2,
}  # fmt: skip
FITTING = 64  # tokens of a micro-batch: several of them make a step
FAILED = 3


def forked(work: Callable[[], int]) -> int:
    """The exit status of this work in a process of its own: negative for the signal that ended it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 99
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def nothing() -> None:
    """What is done to a process that is left alone."""


@dataclass(frozen=True)
class Came:
    """What came of an attempt: `code` is 0 where the run is done, 130 interrupted, FAILED, or minus a signal."""

    code: int
    reason: str


@dataclass
class Small:
    """A corpus, a run on it, and what comes of the run when nothing happens to it."""

    folder: Path

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        loop.LOG_EVERY = 3
        execution.provenance = lambda device, threads: {"device": device, "threads": threads}  # without asking git
        self.count = 0
        self.files = Files(self.folder / "text", self.folder / "corpora").write()
        self.corpus = self.files.prepare()
        self.config = resolve_row(ROW)
        self.calm = self.lay_out()
        assert self.attempt(self.calm).code == 0
        self.expected = self.outcome(self.calm)

    def lay_out(self) -> RunFolder:
        """A run of which nothing is done."""
        run = self._place()
        config = self.config.model_dump(exclude=set(NOT_IDENTITY))
        write_json(run.run, {"id": ID, "seed": 1, "config": config, "data": {}}, durable=False)
        return run

    def copy(self, run: RunFolder) -> RunFolder:
        """The same run elsewhere."""
        place = self._place()
        shutil.copytree(run.path, place.path)
        return place

    def _place(self) -> RunFolder:
        self.count += 1
        return RunFolder(self.folder / str(self.count) / ID)

    def attempt(
        self, run: RunFolder, before: Callable[[], None] = nothing, stop: Callable[[], bool] = lambda: False
    ) -> Came:
        """Carry it out, after `before` in the same process."""
        fields = set(DecodingConfig.model_fields)
        decodings = {decoding_id(self.config): self.config.model_dump(include=fields)}
        unit = Unit(str(run.path), str(self.corpus.folder), decodings, "cpu", {}, threads=1, fitting_tokens=FITTING)
        said = run.path.parent / "reason"

        def work() -> int:
            before()
            outcome, reason = worker._one(unit, stop, {})
            said.write_text(reason)
            return {"done": 0, "interrupted": 130}.get(outcome, FAILED)

        said.unlink(missing_ok=True)
        code = forked(work)
        return Came(code, said.read_text() if said.exists() else "")

    def operations(self) -> list[str]:
        """What an undisturbed run does to the disk, in order."""
        run = self.lay_out()
        disk = Disk(str(run.path))
        names = run.path.parent / "names"

        def stop() -> bool:  # asked between all operations, and so after the last
            return False

        def work() -> int:
            install(disk)
            code = self._within(run, stop)
            names.write_text(json.dumps(disk.names))
            return code

        assert forked(work) == 0
        found: list[str] = json.loads(names.read_text())
        return found

    def _within(self, run: RunFolder, stop: Callable[[], bool]) -> int:
        fields = set(DecodingConfig.model_fields)
        decodings = {decoding_id(self.config): self.config.model_dump(include=fields)}
        unit = Unit(str(run.path), str(self.corpus.folder), decodings, "cpu", {}, threads=1, fitting_tokens=FITTING)
        return 0 if worker._one(unit, stop, {})[0] == "done" else FAILED

    def outcome(self, run: RunFolder) -> dict[str, bytes]:
        """All that must come out the same, and whatever lies about that should not."""
        found = {}
        for path in sorted(run.path.rglob("*")):
            name = path.relative_to(run.path).as_posix()
            if path.is_file() and name not in ("progress.json", "provenance.json", "log.txt"):
                found[name] = path.read_bytes()
        if "result.json" in found:
            result = run.read_result() or {}
            for timed in (result, *result.get("decodings", {}).values()):
                timed.pop("seconds", None)
            found["result.json"] = json.dumps(result).encode()
        return found


def faulty(run: RunFolder, fault: Fault) -> Callable[[], None]:
    """Makes a process meet a fault in a run's folder."""
    return lambda: install(Disk(str(run.path), fault))


def resumed_at(run: RunFolder) -> int:
    """The step from which a run last went on; 0 where it began anew."""
    found = re.findall(r"resumed at step (\d+)", run.log.read_text() if run.log.exists() else "")
    return int(found[-1]) if found else 0


def saved_before(operations: list[str], n: int) -> int:
    """The step of the newest generation that is whole before the n-th operation, counted from 1."""
    steps = [int(name.split()[1][:9]) for name in operations[: n - 1] if re.fullmatch(r"rename \d{9}\.json", name)]
    return max(steps, default=0)
