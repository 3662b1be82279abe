"""A small study on a Slurm of one node: submit it, disturb it, let it end, and compare it with a
local run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ablate.store import Results, none_if_unreadable
from ablate.store.jobs import JobFolder, jobs_of
from ablate.study import read_study, runs_of
from tests.slurm.one_node import OneNodeSlurm

ROOT = Path(__file__).parents[2]
STUDY = """\
study: small
data: {corpus: toy, vocab_size: 200}
base:
  N: 1
  d_model: 16
  d_ff: 32
  h: 2
  train_steps: 400
  batch_tokens: 512
  warmup_steps: 100
  eval_every: 200
  checkpoint_every: 100
seeds: [1, 2]
rows:
  A: {each: {h: [1]}}
"""
# One core for each pilot, so that every run has one thread, as the local one has.
OPTIONS = ("--on", "slurm", "--sbatch", "cpus-per-task=1", "--sbatch", "partition=low", "--detach")
END_SECONDS = 600.0
COMPARED = ("checkpoints/*.safetensors", "metrics.jsonl", "translations/*.txt")


class Trial:
    """One submission of the study, in a folder of its own."""

    def __init__(self, slurm: OneNodeSlurm, folder: Path, text: str = STUDY) -> None:
        self.slurm, self.folder, self.began = slurm, folder, time.monotonic()
        folder.mkdir(parents=True)
        self.path = folder / "small.yaml"
        self.path.write_text(text)
        self.study, self.results = read_study(self.path), Results(folder / "results")
        self.ids = [run.id for run in runs_of(self.study)]

    def ablate(self, *words: str, code: int | None = 0, **variables: str) -> str:
        """The output of a command; it must exit with this code, or with any if it is None."""
        environment = {**self.slurm.environment, "PYTHONPATH": str(ROOT), **variables}
        done = subprocess.run(
            [sys.executable, "-m", "ablate", *words],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert code in (None, done.returncode), (words, done)
        return done.stdout + done.stderr

    def run_here(self) -> None:
        """Execute the study on this machine, in runs of one thread."""
        self.ablate("run", "small.yaml", "--device", "cpu", "--jobs", "1", SLURM_CPUS_ON_NODE="1")

    def share_corpus(self, other: Trial) -> None:
        """Use the corpus that another trial has prepared."""
        shutil.copytree(other.results.corpora, self.results.corpora)

    def submit(self, *options: str, workers: int = 2) -> JobFolder:
        """Submit the study."""
        self.ablate("run", "small.yaml", *OPTIONS, "--workers", str(workers), *options)
        return self.job

    @property
    def job(self) -> JobFolder:
        """The last job."""
        return jobs_of(self.results, "small")[-1]

    def steps(self) -> list[int]:
        """The last reported step of each run; all of them for a finished one."""
        found = []
        for id in self.ids:
            report = none_if_unreadable(self.results.run(id).read_progress)
            found.append(
                400 if self.results.run(id).result.exists() else (report.step or 0) if report else 0
            )
        return found

    def wait_until_training(self) -> None:
        """Wait until a run is somewhere in its middle."""
        self.slurm.wait_for(
            lambda: any(0 < step < 400 for step in self.steps()), "a run in training", END_SECONDS
        )

    def training(self) -> dict[int, str]:
        """Processes that train runs now, each with its run."""
        found = {}
        for id in self.ids:
            folder = self.results.run(id)
            report = none_if_unreadable(folder.read_progress)
            if report and folder.lease.exists() and 0 < (report.step or 0) < 400:
                found[report.pid] = id
        return found

    def let_end(self) -> None:
        """Wait until no job of Slurm is left; jobs that were put back into the queue start after two
        seconds.
        """
        # At once, Slurm would kill some of them: "Job credential revoked", by the requeue.
        since: dict[str, float] = {}

        def ended() -> bool:
            lines = self.slurm.jobs()
            if lines is None:
                return False
            for id, state in (line.split()[:2] for line in lines):
                if state != "PENDING" or "_" not in id:
                    since.pop(id, None)
                elif time.monotonic() > since.setdefault(id, time.monotonic()) + 2:
                    self.slurm.ask("scontrol", "update", f"jobid={id}", "StartTime=now")
            return not lines

        self.slurm.wait_for(ended, "the end of all jobs", END_SECONDS)

    def pids(self, word: str) -> list[int]:
        """Processes of this trial whose command line has a word: `ablate work` or
        `ablate.workers.worker`.
        """
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    command = (entry / "cmdline").read_text().replace("\0", " ")
                    where = os.readlink(entry / "cwd")  # noqa: PTH115
                except OSError:
                    continue
                if word in command and where.startswith(str(self.folder)):
                    found.append(int(entry.name))
        return found

    # Outcome

    def lost(self) -> int:
        """Runs without a result."""
        return sum(not self.results.run(id).result.exists() for id in self.ids)

    def wrong(self, other: Trial) -> int:
        """Files of the runs that differ from another trial's."""
        ours, theirs = self.files(), other.files()
        return sum(ours.get(name) != theirs.get(name) for name in ours.keys() | theirs.keys())

    def files(self) -> dict[str, bytes]:
        """Weights, logs and translations, by path."""
        return {
            str(path.relative_to(self.results.root)): path.read_bytes()
            for pattern in COMPARED
            for path in self.results.root.glob(f"runs/*/{pattern}")
            if not path.name.endswith(".state.safetensors")
        }

    def twice(self) -> int:
        """Runs that were published more than once."""
        logs = [self.results.run(id).log for id in self.ids]
        return sum(log.read_text().count("published: ") > 1 for log in logs if log.exists())
