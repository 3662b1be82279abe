"""An executor in one file, as a user would write it: it carries a study to the same table as the
local one.

Each job is a process of its own that calls `execute_if_free`, and sends its outcome back through a
queue, as an executor for a cluster would submit a command and watch its output.
"""

import multiprocessing
import queue
import shutil
import signal
from pathlib import Path

import pytest

from ablate.analysis.outcome import outcome_of
from ablate.analysis.stages import next_stage
from ablate.launch.executor import Lost, Slot
from ablate.launch.launch import launch, outcome_of_launch
from ablate.store import Results
from ablate.store.machine import Resources
from ablate.study import read_study, runs_of
from ablate.table.render import as_json
from ablate.workers.assignment import Assignment, WorkerEvent
from ablate.workers.worker import execute_if_free
from tests.forked import SERVER

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


def run_job(line: str, outcomes: "multiprocessing.Queue[str]") -> None:
    """Execute a job in this process, which a signal asks to save and leave."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    outcomes.put(execute_if_free(Assignment.from_line(line), lambda: bool(asked), {}).to_line())


class ProcessExecutor:
    """A process for each job, and one queue for all outcomes."""

    def __init__(self, slots):
        self._slots, self._outcomes = slots, SERVER.Queue()
        self._processes = {}

    def slots(self):
        return self._slots

    def submit(self, job, slot):
        process = SERVER.Process(target=run_job, args=(job.to_line(), self._outcomes))
        process.start()
        self._processes[job.run.id] = process

    def events(self, timeout):
        try:
            event = WorkerEvent.from_line(self._outcomes.get(timeout=timeout))
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


def two_processes(demand):
    """An executor with two slots, whatever this machine has."""
    return ProcessExecutor([Slot("one", ("cpu",), 1, 1e9), Slot("two", ("cpu",), 1, 1e9)])


class Outcomes(dict):
    """A watcher that keeps the outcomes."""

    def announce(self, corpus, slots, missing):
        pass

    def log(self, line):
        pass

    def started(self, run):
        pass

    def held(self, run):
        pass

    def finished(self, run, outcome, reason=""):
        self[run] = (outcome, reason)

    def lost(self, run, reason):
        pass

    def tick(self):
        pass


def launched(study, results, watcher, *arguments, **options):
    """The outcome of launching the one stage of a study."""
    launch(next_stage(study, results), results, watcher, *arguments, **options)
    return outcome_of_launch(runs_of(study), results)


def files(results, pattern):
    """The bytes of the runs' files that match, by their path."""
    return {
        path.relative_to(results.root): path.read_bytes()
        for path in results.root.glob(f"runs/*/{pattern}")
    }


def test_a_study_in_another_executor_gives_the_table_of_the_local_one(tmp_path):
    path = tmp_path / "dummy.yaml"
    path.write_text(STUDY)
    study, local, other = read_study(path), Results(tmp_path / "local"), Results(tmp_path / "other")
    assert set(launched(study, local, Outcomes(), Resources(device="cpu", jobs=2))) == {"done"}
    shutil.copytree(local.corpora, other.corpora)
    watcher = Outcomes()
    outcome = launched(study, other, watcher, executor_for=two_processes)
    assert outcome == {"done": 4}
    assert set(watcher.values()) == {("done", "")}
    assert as_json(outcome_of(runs_of(study), other).table, timed=False) == as_json(
        outcome_of(runs_of(study), local).table, timed=False
    )
    for pattern in ("checkpoints/*.safetensors", "metrics.jsonl", "translations/*.txt"):
        assert files(other, pattern) == files(local, pattern)
        assert len(files(other, pattern)) >= 4


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
        launched(
            read_study(path),
            Results(Path("results")),
            Outcomes(),
            executor_for=lambda demand: Refusing([Slot("0", ("cpu",), 1, 1e9)]),
        )
    (job,) = jobs
    assert job.run.folder == tmp_path / "results" / "runs" / job.run.id
    assert job.run.corpus.parent == tmp_path / "results" / "corpora"
