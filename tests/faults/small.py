"""One small run, executed as by a worker, in a forked process that starts at once."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sacrebleu  # loaded here once for all forked processes  # noqa: F401
import torch
import torch._dynamo  # as above: the optimizer loads it

import ablate.decoding.translate  # and these, which the end of a run loads
import ablate.metrics.evaluation  # noqa: F401
from ablate.config import DecodingConfig
from ablate.config.identity import NOT_IDENTITY, decoding_id
from ablate.config.resolve import resolve_row
from ablate.config.translation_data import TranslationData
from ablate.data.prepare import prepare
from ablate.publication.folder import publish
from ablate.store import Results, RunFolder, lease
from ablate.training import trainer
from ablate.workers import execution
from ablate.workers.assignment import Assignment, RunRequest
from ablate.workers.worker import execute_if_free
from tests.data.small import PAIRS, SETTINGS, Files
from tests.faults.inject import Disk, Fault, install
from tests.records import a_provenance, a_run
from tests.report.fakes import Fake, study_from

ID = "0123456789ab"
STEPS = 12
ROW = {
    "n_layers": 1, "d_model": 14, "d_ff": 11, "n_heads": 3, "d_k": 5, "d_v": 7, "max_positions": 120, "dropout": 0.3,
    "train_steps": STEPS, "batch_tokens": 200, "warmup_steps": 5, "eval_every": 5, "checkpoint_every": 4,
    "beam": 1, "max_extra_length": 2, "average_checkpoints": 2,
}  # fmt: skip
FITTING = 100  # tokens of a micro-batch; a step has two or three
FAILED = 3
TERM = 1.0  # seconds; the lease's term where a test waits for its end


def forked(work: Callable[[], int]) -> int:
    """Run work in a forked process; returns its exit status, negative for a signal."""
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
    """Do nothing."""


@dataclass(frozen=True)
class Came:
    """Outcome of an attempt. `code`: 0 done, 130 interrupted, FAILED, or minus a signal."""

    code: int
    reason: str


@dataclass
class Small:
    """A corpus, a run on it, and the files of that run without any fault."""

    folder: Path

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        trainer.LOG_EVERY = 3
        provenance = a_provenance(threads=1)
        execution.provenance = lambda *of: provenance  # the real one calls git, which is slow
        self.count = 0
        few = {split: PAIRS[split][:6] for split in ("dev", "test")}
        self.files = Files(self.folder / "text", self.folder / "corpora").write(**few)
        self.corpus = self.files.prepare()
        self.config = resolve_row(ROW)
        self.calm = self.lay_out()
        assert self.attempt(self.calm).code == 0
        self.expected = self.outcome(self.calm)
        gc.freeze()  # a collection in a fork would copy the pages of all that is loaded

    def lay_out(self) -> RunFolder:
        """Create a run that has not begun."""
        run = self._place()
        a_run(ID, config=self.config, data={}).write(run.run, durable=False)
        return run

    def copy(self, run: RunFolder) -> RunFolder:
        """Copy a run."""
        place = self._place()
        shutil.copytree(run.path, place.path)
        return place

    def _place(self) -> RunFolder:
        self.count += 1
        return RunFolder(self.folder / str(self.count) / ID)

    def attempt(
        self,
        run: RunFolder,
        before: Callable[[], None] = nothing,
        stop: Callable[[], bool] = lambda: False,
    ) -> Came:
        """Execute the run in a forked process, after calling `before` there."""
        job = self._job(run)
        said = run.path.parent / "reason"

        def work() -> int:
            before()
            event = execute_if_free(job, stop, {})
            said.write_text(event.reason)
            return {"done": 0, "interrupted": 130}.get(event.outcome, FAILED)

        said.unlink(missing_ok=True)
        code = forked(work)
        return Came(code, said.read_text() if said.exists() else "")

    def taken_over(self, run: RunFolder, step: int) -> list[int]:
        """Suspend a worker in this step, let another take over, and wake the first; returns the
        exit status of each.
        """
        lease.TERM_SECONDS, usual = TERM, lease.TERM_SECONDS
        asked = iter(range(1, 10_000))

        def stop() -> bool:
            if next(asked) == step:
                os.kill(os.getpid(), signal.SIGSTOP)
            return False

        def wait_and_work() -> int:
            mine: dict[str, lease.Lease] = {}
            while (outcome := execute_if_free(self._job(run), _never, mine).outcome) == "held":
                time.sleep(TERM / 20)
            return 0 if outcome == "done" else FAILED

        pid = os.fork()
        if not pid:
            os._exit(
                {"done": 0, "held": 4}.get(
                    execute_if_free(self._job(run), stop, {}).outcome, FAILED
                )
            )
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        other = forked(wait_and_work)
        os.kill(pid, signal.SIGCONT)
        first = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        lease.TERM_SECONDS = usual
        return [first, other]

    def _job(self, run: RunFolder) -> Assignment:
        fields = set(DecodingConfig.model_fields)
        decodings = {
            decoding_id(self.config, "test"): DecodingConfig(
                **self.config.model_dump(include=fields)
            )
        }
        settings = self.config.model_dump(include=set(NOT_IDENTITY))
        request = RunRequest(
            folder=run.path,
            corpus=self.corpus.folder,
            test="test",
            decodings=decodings,
            settings=settings,
        )
        return Assignment(run=request, devices=("cpu",), threads=1, micro_batch_tokens=FITTING)

    def operations(self) -> list[str]:
        """File operations of an undisturbed run, in order."""
        run = self.lay_out()
        return self.noted(
            Disk(str(run.path)),
            lambda: FAILED * (execute_if_free(self._job(run), _never, {}).outcome != "done"),
        )

    def noted(self, disk: Disk, work: Callable[[], int]) -> list[str]:
        """File operations of some work, in order."""
        names = self.folder / "names"

        def work_noted() -> int:
            install(disk)
            code = work()
            names.write_text(json.dumps(disk.names))
            return code

        assert forked(work_noted) == 0
        found: list[str] = json.loads(names.read_text())
        return found

    def prepare(self, corpora: Path, fault: Fault | None = None) -> int:
        """Prepare the corpus in a folder."""
        if fault is not None:
            install(Disk(str(corpora), fault))
        prepare(TranslationData.resolve(SETTINGS), self.files.folder, corpora).verify()
        return 0

    def prepared(self, corpora: Path) -> dict[str, bytes]:
        """All files that readers use. Leftovers of a kill begin with a dot, or are a dead lease."""
        files = [
            path for path in corpora.rglob("[!.]*") if path.is_file() and path.suffix != ".lease"
        ]
        return {path.relative_to(corpora).as_posix(): path.read_bytes() for path in files}

    def table(self) -> Published:
        """A study with hand-written results, to be published."""
        folder = self.folder / "study"
        folder.mkdir()
        return Published(Fake(folder / "results", study_from(folder)).all_done())

    def outcome(self, run: RunFolder) -> dict[str, bytes]:
        """Everything that must not differ, including files that should not exist."""
        found = {}
        for path in sorted(run.path.rglob("*")):
            name = path.relative_to(run.path).as_posix()
            if path.is_file() and name not in ("progress.json", "provenance.json", "log.txt"):
                found[name] = path.read_bytes()
        if "result.json" in found:
            result = run.read_result()
            assert result is not None
            decodings = {
                id: one.model_copy(update={"seconds": 0.0}) for id, one in result.decodings.items()
            }
            untimed = result.model_copy(update={"seconds": 0.0, "decodings": decodings})
            found["result.json"] = untimed.model_dump_json().encode()
        return found


@dataclass
class Published:
    """A table, and the files that publishing it writes."""

    fake: Fake

    def publish(self, root: Path, fault: Fault | None = None) -> int:
        """Publish the table below this root."""
        if fault is not None:
            install(Disk(str(root), fault))
        publish(self.fake.outcome(), _Elsewhere(self.fake.results.root, root))
        return 0

    def published(self, root: Path) -> dict[str, bytes]:
        """The published files; leftovers of a kill begin with a dot and are left out."""
        return {path.name: path.read_bytes() for path in root.rglob("[!.]*") if path.is_file()}


@dataclass(frozen=True)
class _Elsewhere(Results):
    """Results that are published in another folder than they are read from."""

    place: Path = Path()

    def study(self, name: str) -> Path:
        return self.place / name


def _never() -> bool:
    return False


def faulty(run: RunFolder, fault: Fault) -> Callable[[], None]:
    """Function that installs a fault in a run's folder in the calling process."""
    return lambda: install(Disk(str(run.path), fault))


def resumed_at(run: RunFolder) -> int:
    """The step at which a run was last resumed; 0 if it started anew."""
    found = re.findall(r"resumed at step (\d+)", run.log.read_text() if run.log.exists() else "")
    return int(found[-1]) if found else 0


def saved_before(operations: list[str], n: int) -> int:
    """The step of the newest checkpoint that is complete before the n-th operation, counted from
    1.
    """
    steps = [
        int(name.split()[1][:9])
        for name in operations[: n - 1]
        if re.fullmatch(r"rename \d{9}\.json", name)
    ]
    return max(steps, default=0)
