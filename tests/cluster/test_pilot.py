"""Jobs of a cluster without a cluster: frozen studies, what a pilot decides, what the closing job
submits again.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from types import MappingProxyType

import pytest

from ablate.analysis.missing import failed_before, missing_runs, on_some_host, on_this_host
from ablate.analysis.stages import next_stage
from ablate.cluster import pilot as module
from ablate.cluster import slurm
from ablate.cluster.pilot import Pilot
from ablate.cluster.profiles import ENGINES
from ablate.cluster.slurm import SlurmTask
from ablate.cluster.submission import freeze, open_job, submit, submit_again
from ablate.errors import Interrupted, StoreError
from ablate.store import Results
from ablate.store.jobs import CANCELLED, JobFolder, PilotReport, Submission
from ablate.store.machine import Resources
from ablate.store.processes import process_mark
from ablate.store.records import Failure, Progress
from ablate.store.status import record_failure
from ablate.study import Selection, read_study, runs_of
from tests.cli.inside import inside
from tests.records import a_result

STUDY = """\
study: tiny
data: {corpus: files, train: train, dev: dev, test: test, direction: de-en, folder: texts}
base: {train_steps: 20, n_layers: 1, d_model: 16, d_ff: 32, n_heads: 2}
seeds: [1, 2]
rows:
  A: {each: {h: [1]}}
"""
TOY = STUDY.replace(
    "files, train: train, dev: dev, test: test, direction: de-en, folder: texts", "toy"
)


@pytest.fixture
def job(tmp_path):
    """Freeze a study; returns (folder of the job, study)."""

    def job(text=TOY, selection=None, **settings):
        path = tmp_path / "tiny.yaml"
        path.write_text(text)
        selection = selection or Selection()
        study = read_study(path, selection)
        profile = ENGINES[settings.get("engine", "slurm")](**settings)
        results = Results(tmp_path / "results")
        return freeze(study, results, selection, "gpu", profile, Resources()), study

    return job


def progress(results, run, step, phase="training"):
    results.run(run).path.mkdir(parents=True, exist_ok=True)
    Progress(**process_mark().model_dump(), phase=phase, step=step, time=time.time()).write(
        results.run(run).progress
    )


def test_an_edit_of_the_study_does_not_change_its_job(job, tmp_path):
    folder, study = job(STUDY.replace("folder: texts", "vocab_size: 100, folder: texts"))
    (tmp_path / "tiny.yaml").write_text("study: tiny\ndata: {corpus: toy}\n")
    record, frozen = open_job(folder)
    assert (
        [run.id for run in runs_of(frozen)]
        == [run.id for run in runs_of(study)]
        == list(record.runs)
    )
    assert frozen.data_folder == tmp_path / "texts"
    assert not frozen.source.is_modified
    assert folder.results.root == tmp_path / "results"


@pytest.mark.parametrize("name", ["my #1 data", "a: b", "null", "~", '"a"', "[x]", "a=b", "1e3"])
@pytest.mark.parametrize("where", ["file", "set"])
def test_a_job_reads_the_folder_of_its_data_however_it_is_named(job, tmp_path, name, where):
    """The path is never parsed: `/x/my #1 data` is not `/x/my` with a comment."""
    folder = tmp_path / name
    if where == "file":
        frozen = open_job(
            job(STUDY.replace("folder: texts", "folder: " + json.dumps(str(folder))))[0]
        )[1]
    else:
        selection = Selection((f"data.folder={folder}",))
        frozen = open_job(job(STUDY, selection)[0])[1]
    assert frozen.data_folder == folder


def test_a_job_keeps_the_selection_of_the_command_line(job):
    folder, study = job(selection=Selection(("train_steps=30",), ("A",), "2-3"))
    frozen = open_job(folder)[1]
    assert (frozen.seeds.rows, frozen.rows[0].config.train_steps) == ((2, 3), 30)
    assert frozen.source.is_modified
    assert [run.id for run in runs_of(frozen)] == [run.id for run in runs_of(study)]


def test_a_job_keeps_the_sources_of_custom_classes(job, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    source = tmp_path / "mine" / "norms.py"
    source.write_text("class Scale: pass\n")
    folder, study = job(TOY.replace("rows:", "rows:\n  B: {set: {norm: 'mine.norms:Scale'}}"))
    source.write_text("class Scale: changed = True\n")
    assert [run.id for run in runs_of(open_job(folder)[1])] == [run.id for run in runs_of(study)]


def test_a_job_keeps_the_classes_of_a_package_beside_those_of_its_modules(job, tmp_path):
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    for file, name in (("__init__", "Scale"), ("deep/__init__", "Empty"), ("deep/gates", "Gate")):
        (tmp_path / "mine" / f"{file}.py").write_text(f"class {name}: pass\n")
    rows = (
        "rows:\n  B: {set: {norm: 'mine:Scale'}}\n  C: {set: {activation: 'mine.deep.gates:Gate'}}"
    )
    folder, study = job(TOY.replace("rows:", rows))
    shutil.rmtree(tmp_path / "mine")
    assert [run.id for run in runs_of(open_job(folder)[1])] == [run.id for run in runs_of(study)]
    files = {
        str(file.relative_to(folder.study.parent)): file.read_text()
        for file in folder.path.rglob("*.py")
    }
    assert files == {
        "mine/__init__.py": "class Scale: pass\n",
        "mine/deep/__init__.py": "",
        "mine/deep/gates.py": "class Gate: pass\n",
    }


def test_a_frozen_study_that_reads_otherwise_is_refused(job):
    folder, _ = job()
    folder.study.write_text(folder.study.read_text().replace("20", "21"))
    with pytest.raises(StoreError, match="reads other runs from the frozen study; submit it again"):
        open_job(folder)


def test_a_gpu_job_never_trains_on_the_cpu(job):
    assert open_job(job(sbatch={"gpus-per-node": 2})[0])[0].resources.device == "cuda"
    assert open_job(job(sbatch={"cpus-per-task": 2})[0])[0].resources.device == "auto"


# Failures of hosts


@pytest.mark.parametrize(
    ("hosts", "killed", "is_tried"),
    [
        ((), False, True),
        (("elsewhere",), False, True),
        (("here",), False, False),
        (("elsewhere", "there"), False, False),
        (("here",), True, True),
    ],
)
def test_a_failed_run_is_tried_once_more_on_another_host(job, monkeypatch, hosts, killed, is_tried):
    folder, study = job()
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    id = next(iter(runs_of(study))).id
    folder.results.run(id).path.mkdir(parents=True)
    Failure(reason="sick", time=0.0, killed=killed, hosts=hosts).write(
        folder.results.run(id).failure
    )
    assert (id in missing_runs(runs_of(study), folder.results, on_this_host)) is is_tried
    for is_asked in (False, True):  # `ablate run` waits to be asked
        asked = failed_before(1.0, all_failures=is_asked)
        assert (id in missing_runs(runs_of(study), folder.results, asked)) is (killed or is_asked)
    assert id not in missing_runs(
        runs_of(study), folder.results, failed_before(0.0, all_failures=True)
    )


# A pilot


class FakeTask(SlurmTask):
    """An allocation of which Slurm says what the test says."""

    answers = MappingProxyType({"left": 3600.0, "state": "RUNNING", "restarts": 0, "refusal": ""})

    def seconds_left(self):
        return self.answers["left"]

    def state(self):
        return self.answers["state"], self.answers["restarts"]

    def requeue(self):
        self.answers["requeued"] = True
        return self.answers["refusal"]


@pytest.fixture
def pilot(job, monkeypatch):
    """Make a pilot of a job; keywords are what Slurm answers."""
    handlers = {number: signal.getsignal(number) for number in Pilot.signals}

    def pilot(in_slurm=True, **answers):
        folder, study = job(grace=30)
        task = FakeTask("7_0", 0, 30) if in_slurm else None
        monkeypatch.setattr(FakeTask, "answers", {**FakeTask.answers, **answers})
        monkeypatch.setattr(SlurmTask, "current", staticmethod(lambda grace: task))
        made = Pilot(folder, folder.read_job(), lambda line: None)
        made.labels = runs_of(study).labels
        made.runs = list(made.labels)
        return made

    yield pilot
    for number, handler in handlers.items():
        signal.signal(number, handler)


def report_of(pilot):
    return PilotReport.read(pilot.folder.pilot(pilot.name))


def test_a_pilot_reports_its_runs_and_its_end(pilot):
    one = pilot()
    one.started(one.runs[0])
    assert (report_of(one).running, report_of(one).is_alive) == (("base seed 1",), True)
    one.finished(one.runs[0], "done")
    one.finished(one.runs[1], "done")  # another pilot's
    assert one.finish(Counter(done=4)) == 0
    report = report_of(one)
    assert (report.phase, report.ended, report.reason, report.is_alive) == (
        "left", 1, "nothing is left to do", False,
    )  # fmt: skip
    assert "requeued" not in FakeTask.answers


def test_runs_that_others_hold_are_left_to_them(pilot):
    one = pilot()
    assert one.finish(Counter(done=2, running=2)) == 0
    assert report_of(one).reason == "2 runs left to other pilots"


@pytest.mark.parametrize(
    ("signals", "answers", "steps", "reason", "requeued"),
    [
        ((signal.SIGUSR1,), {}, 5, "requeued", True),  # preempted, or the time limit
        ((signal.SIGUSR1, signal.SIGTERM), {}, 5, "requeued", True),
        ((signal.SIGUSR1,), {"left": 10.0}, 0, "not requeued: its time limit came before any step was made", False),
        ((signal.SIGUSR1,), {"left": 9999.0}, 0, "requeued", True),  # preempted at once
        ((signal.SIGTERM,), {"state": "COMPLETING"}, 5, "cancelled", False),  # scancel
        ((signal.SIGTERM,), {}, 5, "requeued", True),  # preempted without a warning
        ((signal.SIGUSR1, signal.SIGTERM), {"state": "COMPLETING", "restarts": 1}, 5, "requeued by Slurm", False),
        ((signal.SIGUSR1,), {"refusal": "disabled"}, 5, "not requeued: disabled", True),
    ],
)  # fmt: skip
def test_a_pilot_that_the_cluster_ends_goes_back_into_the_queue_if_that_helps(
    pilot, signals, answers, steps, reason, requeued
):
    one = pilot(**answers)
    one.started(one.runs[0])
    progress(one.results, one.runs[0], steps)
    for number in signals:
        one.on_signal(number)
    assert one.finish(None) == 130
    assert (report_of(one).reason, FakeTask.answers.get("requeued", False)) == (reason, requeued)


def test_a_pilot_that_was_asked_to_stop_is_not_requeued(pilot):
    one = pilot()
    assert not one.must_stop()
    one.folder.request_stop()
    one.next_stop = 0.0
    assert one.must_stop()
    one.started(one.runs[0])
    progress(one.results, one.runs[0], 5)
    assert one.finish(None) == 0  # it has done what it was asked to: nobody is to start it again
    assert (report_of(one).reason, "requeued" in FakeTask.answers) == ("stopped on request", False)


def test_a_pilot_whose_time_limit_allows_no_run_is_not_requeued_for_ever(pilot):
    one = pilot(left=80.0)
    assert not one.may_start()
    one.finish(Counter(pending=4))
    assert report_of(one).reason == "not requeued: its time limit came before any step was made"
    assert "requeued" not in FakeTask.answers


@pytest.mark.parametrize(
    ("left", "may_start"), [(89.0, False), (100.0, True), (float("inf"), True)]
)
def test_no_run_is_started_shortly_before_the_warning(pilot, left, may_start):
    """The grace is 30 s, and a run needs 60 s to be worth its start."""
    one = pilot(left=left)
    assert one.may_start() is may_start
    assert one.finish(Counter(done=1, pending=3)) == (0 if may_start else 130)


def test_a_pilot_leaves_a_host_on_which_runs_fail_at_once(pilot):
    one = pilot()
    for run in one.runs[:2]:
        assert not one.must_stop()
        one.started(run)
        one.finished(run, "failed", "no CUDA")
    one.next_stop = 0.0
    assert one.must_stop()
    assert one.finish(None) == 1
    assert report_of(one).reason == f"2 runs in a row failed at once on {socket.gethostname()}"
    assert "requeued" not in FakeTask.answers


def test_failures_after_progress_are_not_the_hosts_fault(pilot):
    one = pilot()
    for run in one.runs:
        one.started(run)
        progress(one.results, run, 7)
        one.finished(run, "failed", "a reason")
    one.next_stop = 0.0
    assert not one.must_stop()


def test_a_pilot_with_nothing_left_to_do_is_not_requeued_however_near_its_time_limit_is(pilot):
    one = pilot(left=80.0)
    assert not one.may_start()
    one.has_progress = True
    assert one.finish(Counter(done=3, diverged=1)) == 0
    assert (report_of(one).reason, "requeued" in FakeTask.answers) == (
        "nothing is left to do",
        False,
    )


def test_a_controller_that_does_not_answer_does_not_lift_the_time_limit(pilot):
    one = pilot(left=80.0)
    assert not one.may_start()
    one.next_limit = 0.0
    FakeTask.answers["left"] = None
    assert not one.may_start()


@pytest.mark.parametrize("engine", ["ray", "manual"])
def test_a_pilot_never_requeues_an_allocation_that_its_job_did_not_submit(job, monkeypatch, engine):
    """Such as the allocation of Slurm that a whole cluster of Ray runs in, whose pilots share its
    id.
    """
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "slurm", lambda *command: pytest.fail(f"asked Slurm: {command}"))
    folder, _ = job(engine=engine)
    one = Pilot(folder, folder.read_job(), lambda line: None)
    assert one.name == f"{socket.gethostname()}-{os.getpid()}"
    assert one.may_start()
    assert one.finish(None) == 130
    assert report_of(one).reason == "interrupted"


def test_a_second_signal_of_the_cluster_does_not_keep_a_pilot_from_leaving_in_order(
    pilot, monkeypatch
):
    one = pilot()
    finish = Pilot.finish

    def execute_stages(*arguments):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(5)

    def finish_late(self, states):
        os.kill(os.getpid(), signal.SIGTERM)
        return finish(self, states)

    monkeypatch.setattr(module, "execute_stages", execute_stages)
    monkeypatch.setattr(Pilot, "finish", finish_late)
    assert module.work(one.folder, 0, lambda line: None) == 130
    assert report_of(one).reason == "requeued"


def test_a_pilot_of_a_closed_job_does_no_work(job, monkeypatch):
    folder, _ = job()
    folder.close("stopped on request")
    monkeypatch.setattr(module, "execute_stages", lambda *arguments: pytest.fail("works"))
    lines = []
    assert module.work(folder, 0, lines.append) == 0
    assert lines == ["the job is closed: stopped on request"]


@pytest.mark.parametrize(
    ("hosts", "is_closed"), [((), True), (("here",), False), (("here", "there"), True)]
)
def test_the_last_pilot_of_a_manual_job_publishes_its_table_and_closes_it(
    job, monkeypatch, hosts, is_closed
):
    """Once each run is done, has diverged, or has failed on as many hosts as may try it."""
    folder, study = job(engine="manual")
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    first, *others = (folder.results.run(run.id) for run in runs_of(study))
    for run in others if hosts else (first, *others):
        a_result(id=run.id, outcome="diverged").write(run.result)
    if hosts:
        Failure(reason="sick", time=0.0, hosts=hosts).write(first.failure)
    published = folder.results.study("tiny") / "table.md"
    seen = []
    close = JobFolder.close
    monkeypatch.setattr(
        JobFolder, "close", lambda *given: seen.append(published.exists()) or close(*given)
    )
    handlers = {number: signal.getsignal(number) for number in Pilot.signals}
    done = inside("work", "--job", folder.path)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert done.code == 0, done.err  # of a pod that is not to be started again
    assert published.exists()
    assert folder.is_closed is is_closed
    assert seen == [True] * is_closed  # whoever waits for the end of a job finds its table
    assert inside("work", "--job", folder.path, "--close").code == (1 if hosts else 0)


@pytest.mark.parametrize("others", [0, 1])
def test_the_last_pilot_of_a_stopped_manual_job_closes_it(job, monkeypatch, others):
    folder, _ = job(engine="manual")
    folder.request_stop()
    if others:
        PilotReport(
            host="there", pid=1, born=0.0, name="b", phase="working", time=time.time()
        ).write(folder.pilot("b"))

    def execute_stages(*arguments):
        raise Interrupted

    monkeypatch.setattr(module, "execute_stages", execute_stages)
    inside("work", "--job", folder.path)
    assert folder.is_closed is not bool(others)


def submitted(folder, study):
    """Submit the next stage of the study."""
    return submit(folder, folder.read_job(), next_stage(study, folder.results, on_some_host))


def test_a_pilot_that_sees_nothing_left_takes_the_others_out_of_the_queue(
    job, submissions, monkeypatch
):
    """The closing job waits for all of them. It is not taken out itself."""
    folder, study = job(workers=3)
    submitted(folder, study)
    asked = []

    def answer(*command):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(slurm, "slurm", answer)
    monkeypatch.setattr(module, "execute_stages", lambda stage, *rest: stage)
    runs = [folder.results.run(run.id) for run in runs_of(study)]
    for ended in (runs[:-1], runs):
        for run in ended:
            a_result(id=run.id, outcome="diverged").write(run.result)
        assert module.work(folder, 0, lambda line: None) == 0
        cancelled = [command for command in asked if command[0] == "scancel"]
        assert cancelled == [("scancel", "--state=PENDING", "--", "1")] * (ended is runs)


def test_a_run_here_closes_a_job_whose_runs_it_has_finished(job):
    """Such as a job of Ray whose driver has died; nothing else would close it."""
    orphan, study = job(engine="ray")
    for run in runs_of(study):
        a_result(id=run.id, outcome="diverged").write(orphan.results.run(run.id).result)
    assert inside("run", study.path, "--results", orphan.results.root).code == 0
    assert orphan.read_end().reason == "nothing is left to do"


def test_the_end_of_a_job_closes_others_that_have_nothing_left_to_do(job, submissions):
    """Such as a job of Ray whose driver has died."""
    orphan, study = job(engine="ray")
    folder, _ = job(engine="manual")
    busy, _ = job(engine="ray", selection=Selection(seeds="3"))
    for run in runs_of(study):
        a_result(id=run.id, outcome="diverged").write(folder.results.run(run.id).result)
    inside("work", "--job", folder.path, "--close")
    assert (folder.is_closed, orphan.is_closed, busy.is_closed) == (True, True, False)


def test_a_pilot_leaves_nothing_where_its_results_root_was_removed(pilot):
    one = pilot()
    root = one.folder.results.root
    shutil.rmtree(root)
    assert not one.may_start()
    record_failure(one.results.run(one.runs[0]), "run.json: is missing", None)
    assert one.must_stop()
    assert one.finish(None) == 1
    assert not root.exists()


def test_outside_of_slurm_a_pilot_only_saves(pilot):
    one = pilot(in_slurm=False)
    assert one.may_start()
    assert one.finish(None) == 130
    assert (one.name, report_of(one).reason) == (
        f"{socket.gethostname()}-{os.getpid()}",
        "interrupted",
    )


# The closing job


@pytest.fixture
def submissions(monkeypatch):
    """Replace Slurm by a list of (number of pilots)."""
    asked = []

    def submit_pilots(self, folder, job, pilots):
        asked.append(pilots)
        return (str(len(asked)),), f"{len(asked)}00"

    monkeypatch.setattr(slurm.Slurm, "submit", submit_pilots)
    return asked


def test_no_more_pilots_are_submitted_than_there_are_runs(job, submissions):
    folder, study = job(workers=40)
    assert submitted(folder, study).pilots == 4
    assert submissions == [4]


@pytest.mark.parametrize("at", ["second array", "closing job"])
def test_an_interrupted_submission_leaves_no_pilots_in_the_queue(job, monkeypatch, at):
    folder, study = job(workers=4)
    asked = []

    def fake(*command):
        asked.append(command)
        if command[0] == "sbatch" and len(asked) == (3 if at == "second array" else 4):
            raise Interrupted
        out = "MaxArraySize = 2\n" if command[0] == "scontrol" else f"{len(asked)}\n"
        return subprocess.CompletedProcess(command, 0, out, "")

    monkeypatch.setattr(slurm, "slurm", fake)
    with pytest.raises(Interrupted):
        submitted(folder, study)
    assert asked[-1] == ("scancel", "--", *(("2",) if at == "second array" else ("2", "3")))


def test_a_submission_that_is_interrupted_before_it_is_recorded_is_cancelled(
    job, submissions, monkeypatch
):
    folder, study = job()
    cancelled = []
    monkeypatch.setattr(slurm, "cancel", lambda ids: cancelled.extend(ids))

    def refused(*arguments, **options):
        raise Interrupted

    monkeypatch.setattr(Submission, "write", refused)
    with pytest.raises(Interrupted):
        submitted(folder, study)
    assert (submissions, cancelled) == ([1], ["1", "100"])


def test_the_closing_job_submits_again_as_long_as_work_is_done(job, submissions):
    folder, study = job(workers=2, resubmissions=2)
    submitted(folder, study)
    ids = [run.id for run in runs_of(study)]
    for step in (3, 6):
        progress(folder.results, ids[0], step)
        assert submit_again(folder, lambda line: None) is None
    assert submissions == [2, 2, 2]
    progress(folder.results, ids[0], 9)
    reason = submit_again(folder, lambda line: None)
    assert reason == "submitted 3 times, which is the bound of the profile (resubmissions)"
    assert submissions == [2, 2, 2]


def test_a_closing_job_that_slurm_runs_once_more_does_not_close_the_job_of_its_new_pilots(
    job, submissions, monkeypatch
):
    """As after a failure of its node, which may follow the submission by seconds."""
    folder, study = job(workers=2)
    submitted(folder, study)
    progress(folder.results, next(iter(runs_of(study))).id, 3)
    monkeypatch.setenv("SLURM_JOB_ID", folder.read_submissions()[0].closing)
    for _ in range(2):
        assert submit_again(folder, lambda line: None) is None
        assert submissions == [2, 2]
    monkeypatch.setenv("SLURM_JOB_ID", folder.read_submissions()[1].closing)
    assert submit_again(folder, lambda line: None).startswith("no step was made")


def test_a_table_that_cannot_be_published_keeps_no_run_from_being_submitted_again(job, submissions):
    folder, study = job(workers=2)
    submitted(folder, study)
    progress(folder.results, next(iter(runs_of(study))).id, 3)
    (folder.results.study("tiny") / "table.md").mkdir()
    done = inside("work", "--job", folder.path, "--close")
    assert (done.code, "table.md" in done.err) == (4, True)
    assert submissions == [2, 2]


def test_the_closing_job_ends_without_progress(job, submissions):
    folder, study = job()
    submitted(folder, study)
    inside("work", "--job", folder.path, "--close")
    assert folder.read_end().reason.startswith("no step was made since the last submission")


@pytest.mark.parametrize(
    ("end", "reason"), [("stop", "stopped on request"), ("cancel", "the job was cancelled")]
)
def test_the_closing_job_respects_who_ended_the_pilots(job, submissions, end, reason):
    folder, study = job()
    submitted(folder, study)
    progress(folder.results, next(iter(runs_of(study))).id, 5)
    if end == "stop":
        folder.request_stop()
    else:
        mark = process_mark().model_dump()
        PilotReport(**mark, name="7_0", phase="left", time=0.0, left_for=CANCELLED.kind).write(
            folder.pilot("7_0")
        )
    assert (submit_again(folder, lambda line: None), submissions) == (reason, [1])
