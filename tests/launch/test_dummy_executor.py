"""An executor in one file, as a user would write it: it carries a study to the same table as the local one.

Each job is a process of its own that calls `execute`, and sends its outcome back through a queue, as an executor for a
cluster would submit a command and watch its output.
"""

import multiprocessing
import queue
import shutil
from pathlib import Path

import pytest

from ablate.launch import Executor, Lost, Slot, launch
from ablate.report.render import as_json
from ablate.report.table import table_of
from ablate.run.job import Job, JobEvent
from ablate.run.pipeline import execute
from ablate.store import Results, RunFolder
from ablate.store.lease import Lease
from ablate.study import read_study
from ablate.training import RunContext

STUDY = """\
study: dummy
data: {corpus: toy, vocab_size: 200}
base:
  N: 1
  d_model: 16
  d_ff: 32
  h: 2
  train_steps: 20
  batch_tokens: 512
  warmup_steps: 10
  eval_every: 10
  checkpoint_every: 10
seeds: [1, 2]
rows:
  A: {each: {h: [1]}}
  decoding: {set: {beam: 1}}
"""
SPAWN = multiprocessing.get_context("spawn")


def run_job(line: str, outcomes: "multiprocessing.Queue[str]") -> None:
    """Execute a job in this process. The lease keeps other launchers away from the run."""
    job = Job.from_line(line)
    lease = Lease(RunFolder(job.run.folder).lease)
    with lease.held():
        outcome = execute(job, RunContext(check_lease=lease.check))
    outcomes.put(JobEvent(run=job.run.id, outcome=outcome).to_line())


class ProcessExecutor:
    """A process for each job, and one queue for all outcomes."""

    def __init__(self, slots):
        self._slots, self._outcomes = slots, SPAWN.Queue()
        self._processes = {}

    def slots(self):
        return self._slots

    def submit(self, job, slot):
        process = SPAWN.Process(target=run_job, args=(job.to_line(), self._outcomes))
        process.start()
        self._processes[job.run.id] = process

    def events(self, timeout):
        try:
            event = JobEvent.from_line(self._outcomes.get(timeout=timeout))
        except queue.Empty:
            dead = [run for run, process in self._processes.items() if process.exitcode]
            return [Lost(run, f"exit code {self._processes.pop(run).exitcode}") for run in dead]
        self._processes.pop(event.run).join()
        return [event]

    def cancel(self):
        for process in self._processes.values():
            process.terminate()

    def close(self):
        self.cancel()
        for process in self._processes.values():
            process.join()
        self._outcomes.close()


class Silent:
    """A watcher without interest."""

    def started(self, run):
        pass

    def finished(self, run, outcome, reason=""):
        assert outcome == "done", reason

    def tick(self):
        pass


def test_a_study_in_another_executor_gives_the_table_of_the_local_one(tmp_path):
    path = tmp_path / "dummy.yaml"
    path.write_text(STUDY)
    study, local, other = read_study(path), Results(tmp_path / "local"), Results(tmp_path / "other")
    assert launch(study, local, Silent(), device="cpu", jobs=2).complete
    shutil.copytree(local.corpora, other.corpora)
    outcome = launch(study, other, Silent(), device="cpu", jobs=2, executor_for=ProcessExecutor)
    assert (outcome.complete, outcome.runs) == (True, 4)
    assert as_json(table_of(study, other), timed=False) == as_json(table_of(study, local), timed=False)
    for pattern in ("checkpoints/*.safetensors", "metrics.jsonl", "translations/*.txt"):
        files = [
            {p.relative_to(r.root): p.read_bytes() for p in r.root.glob(f"runs/*/{pattern}")} for r in (local, other)
        ]
        assert files[0] == files[1]
        assert len(files[0]) >= 4


def test_a_relative_results_root_reaches_the_jobs_as_absolute_paths(tmp_path, monkeypatch):
    """Workers may have another working directory."""
    path = tmp_path / "dummy.yaml"
    path.write_text(STUDY)
    jobs = []

    class Refusing(ProcessExecutor):
        def submit(self, job, slot):
            jobs.append(job)
            raise InterruptedError

    monkeypatch.chdir(tmp_path)
    with pytest.raises(InterruptedError):
        launch(read_study(path), Results(Path("results")), Silent(), device="cpu", executor_for=Refusing)
    (job,) = jobs
    assert job.run.folder == tmp_path / "results" / "runs" / job.run.id
    assert job.run.corpus.parent == tmp_path / "results" / "corpora"


def test_the_class_has_the_interface():
    slots = [Slot("0", ("cpu",), 1, 1e9), Slot("1", ("cpu",), 1, 1e9)]
    executor: Executor = ProcessExecutor(slots)
    assert list(executor.slots()) == slots
    assert executor.events(0.0) == []  # no job was submitted
    executor.close()
