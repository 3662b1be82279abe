"""The files of a cluster job: their paths, the order of submissions, the last reports, and what
closes the job.
"""

import re
import time

import pytest

from ablate.errors import StoreError, UsageError
from ablate.store import Results
from ablate.store.files import write_json
from ablate.store.jobs import (
    NOTHING_LEFT,
    REQUEUED,
    STOPPED,
    ClusterJob,
    JobFolder,
    PilotReport,
    Submission,
    jobs_of,
    new_job,
    open_jobs,
    starting_pilots,
)
from ablate.store.machine import Resources
from ablate.store.processes import HEARTBEAT_SECONDS, process_mark
from ablate.store.records import ProcessMark

NOW = time.struct_time((2026, 11, 22, 13, 14, 15, 6, 326, 0))
ELSEWHERE = ProcessMark(host="another-host", pid=1, born=1.0)


@pytest.fixture
def results(tmp_path, monkeypatch):
    strftime = time.strftime
    monkeypatch.setattr(time, "strftime", lambda form: strftime(form, NOW))
    return Results(tmp_path / "results")


def a_job(**changed):
    needed = {
        "id": "j",
        "study": "s",
        "profile": "p",
        "settings": {"engine": "manual"},
        "resources": Resources(),
        "runs": ("r",),
        "time": 5.0,
    }
    return ClusterJob(**{**needed, **changed})


def a_report(name="one", mark=ELSEWHERE, age=0.0, **changed):
    mark = mark.model_dump()
    return PilotReport(
        **{**mark, "name": name, "phase": "working", "time": time.time() - age, **changed}
    )


def test_paths_are_the_documented_ones(results):
    job = new_job(results, "table3")
    names = {
        job.job: "job.json", job.study: "study/study.yaml", job.logs: "logs", job.stop: "stop",
        job.closed: "closed.json", job.submission(2): "submission-2.json", job.pilot("one"): "pilots/one.json",
    }  # fmt: skip
    assert {path.relative_to(job.path).as_posix(): name for path, name in names.items()} == {
        name: name for name in names.values()
    }
    assert job.path == results.study("table3") / "jobs" / "20261122-131415"
    assert (job.id, job.results, job.logs.is_dir()) == (
        "20261122-131415",
        Results(results.root),
        True,
    )


def test_settings_that_are_not_given_are_those_of_the_documentation():
    given = {"id", "study", "profile", "settings", "resources", "runs", "time"}
    assert a_job().model_dump(exclude=given) == {
        "python": "", "origin": "", "overrides": (), "rows": (), "seeds": None, "data_folder": None,
    }  # fmt: skip
    report = a_report()
    assert (report.slots, report.device, report.running, report.ended) == (0, "", (), 0)
    assert (report.starts, report.reason) == (1, "")


def test_of_several_jobs_in_one_second_each_gets_a_folder_and_the_hundredth_is_refused(results):
    jobs = [new_job(results, "s") for _ in range(99)]
    assert [job.id for job in jobs[:3]] == [
        "20261122-131415",
        "20261122-131415-2",
        "20261122-131415-3",
    ]
    assert jobs[-1].id == "20261122-131415-99"
    with pytest.raises(StoreError, match="too many jobs in one second"):
        new_job(results, "s")


def test_jobs_are_listed_until_they_are_closed_for_the_first_reason(results):
    assert jobs_of(results, "s") == []
    first, second, begun = (new_job(results, "s") for _ in range(3))
    for job in (second, first):
        a_job(id=job.id).write(job.job)
    assert not begun.job.exists()  # a submission that was killed
    assert jobs_of(results, "s") == [first, second] == open_jobs(results, "s")
    assert (first.read_end(), first.is_closed, first.read_job()) == (
        None,
        False,
        a_job(id=first.id),
    )
    before = time.time()
    first.close("all runs are done")
    first.close("cancelled")
    assert (first.read_end().reason, first.is_closed) == ("all runs are done", True)
    assert before <= first.read_end().time <= time.time()
    assert (jobs_of(results, "s"), open_jobs(results, "s")) == ([first, second], [second])


def test_links_that_lead_nowhere_hide_neither_a_job_nor_its_end(results):
    job = new_job(results, "s")
    job.job.symlink_to("nowhere")
    assert jobs_of(results, "s") == open_jobs(results, "s") == [job]
    job.closed.symlink_to(job.closed)
    assert open_jobs(results, "s") == []


def test_a_folder_without_a_job_is_refused(tmp_path):
    with pytest.raises(
        UsageError,
        match=f"^{re.escape(str(tmp_path))}: not the folder of a job: job.json is missing$",
    ):
        JobFolder(tmp_path).read_job()


def test_a_request_to_stop_holds_its_reason(results):
    job = new_job(results, "s")
    assert not job.stop.exists()
    assert job.stop_reason() is None
    for content, expected in (("by hand", STOPPED), ("", STOPPED)):
        job.stop.write_text(content)
        assert job.stop_reason() == expected
    for why in (STOPPED, NOTHING_LEFT):
        job.request_stop(why)
        assert job.stop_reason() == why


def test_submissions_are_read_in_their_order_up_to_the_first_that_is_missing(results):
    job = new_job(results, "s")
    assert job.read_submissions() == []
    written = [Submission(ids=(str(number),), work=number, time=1.0) for number in range(1, 5)]
    for number in (2, 1, 4):
        written[number - 1].write(job.submission(number))
    assert job.read_submissions() == written[:2]
    assert (written[0].closing, written[0].all_ids) == (None, ("1",))


@pytest.mark.parametrize("id", ["--user=root", "--me", "1 2", "", "1;2"])
def test_an_id_that_scancel_would_take_for_an_option_is_refused(results, id):
    job = new_job(results, "s")
    for ids, closing in (((id,), None), (("1",), id)):
        content = {"ids": ids, "closing": closing, "work": 0, "time": 0.0}
        write_json(job.submission(1), content)
        with pytest.raises(StoreError, match=r"submission-1.json"):
            job.read_submissions()


def test_pilots_are_awaited_until_their_first_report_and_after_a_requeueing(results):
    job = new_job(results, "s")
    assert job.awaited() == 0
    now = time.time()
    Submission(pilots=2, ids=("1",), work=0, time=now - 100).write(job.submission(1))
    a_report("before", age=50).write(job.pilot("before"))
    Submission(pilots=4, ids=("2",), work=0, time=now - 10).write(job.submission(2))
    assert job.awaited() == 4
    for name, changed in (("a", {}), ("b", {"phase": "left", "reason": "x"}), ("c", {"phase": "left", "left_for": REQUEUED.kind})):  # fmt: skip
        a_report(name, **changed).write(job.pilot(name))
    assert job.awaited() == 2
    job.close("a reason")
    assert job.awaited() == 0


def test_starting_pilots_are_those_in_the_queue_and_those_that_begin(results):
    job = new_job(results, "s")
    assert starting_pilots(results, "s") == 0
    a_job(id=job.id).write(job.job)
    Submission(pilots=3, ids=("1",), work=0, time=0.0).write(job.submission(1))
    a_report("a", phase="starting").write(job.pilot("a"))
    a_report("b").write(job.pilot("b"))
    assert starting_pilots(results, "s") == 2
    job.submission(1).write_text("{")
    assert starting_pilots(results, "s") == 0


def test_unreadable_reports_of_pilots_are_left_out(results):
    job = new_job(results, "s")
    assert job.read_pilots() == []
    reports = [a_report(name) for name in ("a", "b", "c")]
    for report in reports:
        report.write(job.pilot(report.name))
    job.pilot("b").write_text("{")
    assert job.read_pilots() == [reports[0], reports[2]]


@pytest.mark.parametrize(
    ("report", "alive"),
    [
        ({"mark": process_mark(), "age": 1e6}, True),  # of this host: by its process
        ({"mark": process_mark().model_copy(update={"pid": 2**22 + 1})}, False),
        ({"age": HEARTBEAT_SECONDS - 10}, True),
        ({"age": HEARTBEAT_SECONDS + 10}, False),
        ({"phase": "left"}, False),
    ],
)
def test_a_pilot_is_alive_until_it_leaves_or_is_silent(report, alive):
    assert a_report(**report).is_alive is alive
