"""The live view: watching files, watching a launch, in a terminal and in a pipe."""

import io
import json

import pytest
from rich.console import Console

from ablate.cli import live as module
from ablate.cli.live import LiveView
from ablate.errors import Interrupted
from ablate.plan.progress import ProgressReader
from ablate.report.live_table import saved_line
from tests.cli.inside import inside
from tests.cli.test_frame import Tty
from tests.records import a_failure, save_checkpoint
from tests.report.test_live_table import lines


def view_on(fake, tty):
    """A view of the study on a terminal."""
    console = Console(file=tty, force_terminal=True, width=30, height=12)
    return LiveView(fake.planned, fake.results, console)


@pytest.fixture
def course(fake, monkeypatch):
    """Run functions in order, one between every two updates of the view."""

    def plan(*events):
        left = list(events)
        monkeypatch.setattr(module.time, "sleep", lambda seconds: left.pop(0)())
        return left

    return plan


@pytest.fixture
def a_study_goes_on(fake, course):
    """Base trains and is done, a row diverges, another fails, and the rest is done."""
    runs = [(row.label, seed) for row in fake.study.rows for seed in fake.study.seeds.rows]

    def rest():
        for label, seed in runs:
            if (label, seed) not in (("A h=1", 1), ("A h=2", 1)):
                fake.done(label, seed, 5.0, 25.0)

    fake.at("base", 1, 10, alive=True)
    return course(
        lambda: fake.at("A h=1", 1, 10, alive=True),
        lambda: (
            fake.done("base", 1, 5.0, 25.0, seconds=60),
            fake.done("decoding beam=1", 1, 5.0, 24.0),
        ),
        lambda: fake.diverged("A h=1", 1, 50, "the loss exploded to 31.4 nats a token"),
        lambda: fake.failed("A h=2", 1, "RuntimeError: out of luck"),
        rest,
    )


def test_in_a_pipe_every_event_is_a_line(given, fake, a_study_goes_on):
    done = inside("status", *given, "--watch")
    assert (done.code, done.err) == (0, "")
    first, *lines = done.out.splitlines()
    assert first == "small: 0 of 12 runs, 1 running"
    assert lines[0] == "starting base seed 1"
    assert lines[1] == "starting A h=1 seed 1"
    assert lines[2].startswith("done     base seed 1: PPL 5.00, BLEU 25.0 (")
    assert lines[2].endswith("; 1 of 12)") or "; 1 of 12, about " in lines[2]
    assert lines[3].startswith(
        "diverged A h=1 seed 1 at step 50: the loss exploded to 31.4 nats a token ("
    )
    failure = (
        f"failed   A h=2 seed 1: RuntimeError: out of luck; see {fake.folder('A h=2', 1).log} ("
    )
    assert lines[4].startswith(failure)
    assert sum(line.startswith("done ") for line in lines) == 10
    assert lines[-1] == "small: 12 of 12 runs, nothing left to do"
    assert not a_study_goes_on
    assert "\x1b" not in done.out


def test_a_failed_run_whose_result_is_damaged_ends_neither_the_launch_nor_the_view(fake, capsys):
    fake.done("base", 1, 5.0, 25.0)
    fake.failed("base", 1, "RuntimeError: out of luck")
    run = fake.folder("base", 1)
    run.result.write_text("{")
    live = LiveView(fake.planned, fake.results, Console(width=200))
    live.finished(run.id, "failed", "RuntimeError: out of luck")
    assert "failed   base seed 1: RuntimeError: out of luck; see " in capsys.readouterr().out


def test_a_view_of_a_job_goes_on_while_a_failed_run_is_to_be_tried_on_another_host(fake, course):
    fake.all_done()
    run = fake.folder("A h=1", 1)
    run.result.unlink()
    a_failure(hosts=("first",)).write(run.failure)
    left = course(
        lambda: fake.at("A h=1", 1, 10, alive=True),
        lambda: (run.failure.unlink(), fake.done("A h=1", 1, 5.0, 25.0)),
    )
    LiveView(fake.planned, fake.results, Console(width=200)).watch(
        is_retried=lambda: run.failure.exists()
    )
    assert left == []


def test_in_a_terminal_the_table_fills_and_stays(fake, a_study_goes_on, monkeypatch):
    monkeypatch.setattr(module, "REST", 0.0)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("tests.cli.test_frame.WIDTH", 100)
    monkeypatch.setattr("tests.cli.test_frame.HEIGHT", 24)
    tty = Tty()
    console = Console(file=tty, force_terminal=True, width=100, height=24)
    seen = []
    sleep = module.time.sleep
    monkeypatch.setattr(
        module.time, "sleep", lambda seconds: (seen.append(tty.lines), sleep(seconds))
    )
    with LiveView(fake.planned, fake.results, console) as live:
        live.watch()
    assert "base" in seen[0][3]
    assert "10/100" in seen[0][3]
    assert [line.split()[:3] for line in seen[2] if line.startswith("base")] == [
        ["base", "1/3", "5.00"]
    ]
    assert tty.lines[0].startswith("diverged A h=1 seed 1 at step 50")
    final = [
        line
        for line in tty.lines
        if line.startswith(("small:", "base", "A h=", "D dropout", "decoding"))
    ]
    assert final[0] == "small: 12 of 12 runs, 1 failed, 1 diverged"
    assert [line.split()[-1] for line in final[1:]] == ["done", "50", "failed", "done", "done"]
    assert not tty.terminal.cursor.hidden


def test_a_finished_study_is_shown_once(fake, given, course):
    fake.all_done()
    course()
    done = inside("status", *given, "--watch")
    assert (done.code, done.out) == (0, "small: 12 of 12 runs, nothing left to do\n")


@pytest.mark.parametrize("error", [None, Interrupted])
def test_the_table_of_a_launch_is_removed_when_it_completes_and_stays_when_it_is_interrupted(
    fake, monkeypatch, error
):
    monkeypatch.delenv("CI", raising=False)
    tty = Tty()
    live = view_on(fake, tty)
    live.begin()
    assert tty.lines[0].rstrip() == "small: 0 of 12 runs"  # and not that no process runs it
    live.__exit__(error, error and error(), None)
    assert tty.lines[0].startswith("small: 0 of 12 runs") == (error is not None)
    assert (tty.lines == [""]) == (error is None)
    assert not tty.terminal.cursor.hidden


def test_in_a_pipe_a_study_that_nobody_runs_is_named_at_once_and_every_minute(
    given, fake, course, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    fake.done("A h=1", 1, 5.0, 25.0)
    course(lambda: None, lambda: now.__setitem__(0, 61.0), lambda: fake.all_done())
    done = inside("status", *given, "--watch")
    assert (done.code, done.err) == (0, "")
    waiting = "small: 1 of 12 runs, no process is running this study"
    assert done.out.splitlines()[:2] == [waiting, waiting]


@pytest.mark.parametrize(
    ("phase", "brief", "said"),
    [
        ("evaluating", "evaluating", "evaluating on dev"),
        ("measuring", "evaluating", "evaluating on dev"),
        ("decoding", "decoding", "decoding the test set"),
    ],
)
def test_the_view_names_what_a_run_does_beside_training(fake, given, phase, brief, said):
    fake.at("base", 1, 40, alive=True, phase=phase)
    table = lines(ProgressReader(fake.planned, fake.results).read(), 60, 24)
    assert brief in "\n".join(map(str, table))
    assert said in inside("status", *given).out


def test_an_interruption_says_what_is_done_and_from_which_steps_the_others_resume(fake):
    assert saved_line(fake.planned, fake.results) == "0 of 12 runs done"
    fake.done("base", 1, 5.0, 25.0)  # decoded for one of its two rows only
    fake.done("D dropout=0.3", 1, 5.0, 25.0)
    fake.diverged("D dropout=0.3", 2, 50, "the loss exploded")
    fake.failed("D dropout=0.3", 3, "RuntimeError: out of luck")
    for seed, step in ((1, 20), (2, 40), (3, 60)):
        save_checkpoint(fake.folder("A h=1", seed).checkpoints, step - 10)
        save_checkpoint(fake.folder("A h=1", seed).checkpoints, step)
    fake.at("A h=2", 1, 3, alive=False)  # begun, and nothing saved
    text = "1 of 12 runs done, 1 diverged, 1 failed; saved: A h=1 seed 1 at step 20, A h=1 seed 2 at step 40"
    assert saved_line(fake.planned, fake.results) == f"{text}, A h=1 seed 3 at step 60"
    for seed in (1, 2, 3):
        save_checkpoint(fake.folder("A h=2", seed).checkpoints, 70)
    text = text.replace(", A h=1 seed 2", ", A h=2 seed 1 at step 70, A h=1 seed 2")
    assert saved_line(fake.planned, fake.results) == f"{text}, A h=2 seed 2 at step 70 and 2 more"


def test_an_interruption_does_not_count_the_runs_of_other_processes_as_saved(fake):
    save_checkpoint(fake.folder("A h=1", 1).checkpoints, 20)
    save_checkpoint(fake.folder("A h=1", 2).checkpoints, 30)
    fake.at("A h=1", 1, 25, alive=True)
    fake.at("A h=1", 2, 30, alive=False)
    assert (
        saved_line(fake.planned, fake.results)
        == "0 of 12 runs done; saved: A h=1 seed 2 at step 30"
    )


def test_status_names_the_step_that_a_killed_run_resumes_from(fake, given):
    save_checkpoint(fake.folder("A h=1", 1).checkpoints, 20)
    fake.at("A h=1", 1, 25, alive=False)
    fake.at("A h=1", 2, 7, alive=False)
    fake.at("A h=1", 3, 40, alive=False)
    save_checkpoint(fake.folder("A h=1", 3).checkpoints, 40)
    runs = json.loads(inside("status", *given, "--format", "json").out)["runs"]
    details = [run["detail"] for run in runs if run["row"] == "A h=1"]
    assert [text.rpartition("; ")[2] for text in details] == [
        "saved at step 20",
        "nothing is saved",
        "saved at step 40",
    ]
    said = saved_line(fake.planned, fake.results)
    assert said.endswith("saved: A h=1 seed 1 at step 20, A h=1 seed 3 at step 40")


def test_a_run_that_another_process_trains_is_said_to_wait_once(fake):
    out = io.StringIO()
    live = LiveView(fake.planned, fake.results, Console(file=out, width=100))
    live.begin()
    base = fake.folder("base", 1).id
    for _ in range(3):
        live.started(base)
        live.held(base)
    live.finished(base, "failed", "out of luck")
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["starting base seed 1", "waiting  base seed 1: another process trains it"]
    assert lines[2].startswith("failed   base seed 1")
    assert len(lines) == 3


def test_a_run_that_resumes_is_said_to_with_its_step_and_a_lost_worker_with_its_end(fake):
    save_checkpoint(fake.folder("base", 1).checkpoints, 20)
    out = io.StringIO()
    live = LiveView(fake.planned, fake.results, Console(file=out, width=100))
    live.begin()
    base = fake.folder("base", 1).id
    live.started(base)
    live.lost(base, "the worker was ended by SIGSEGV")
    live.started(base)
    live.started(fake.folder("base", 2).id)
    assert out.getvalue().splitlines() == [
        "resuming base seed 1, last saved at step 20",
        "lost     base seed 1: the worker was ended by SIGSEGV; started again",
        "starting base seed 2",
    ]


def test_the_last_frame_of_an_interrupted_launch_shows_the_state_after_it(fake, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    tty = Tty()
    live = view_on(fake, tty)
    live.begin()
    live.next_reading = float("inf")
    fake.done("A h=1", 1, 5.0, 25.0)
    live.__exit__(Interrupted, Interrupted(), None)
    assert tty.lines[0].startswith("small: 1 of 12 runs")


def test_in_a_pipe_running_runs_are_logged_once_a_minute(fake, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    live = LiveView(fake.planned, fake.results, Console(highlight=False, width=200))
    live.begin()
    fake.at("A h=1", 2, 40, alive=True, loss=2.345)
    for seconds in (1, 30, 59):
        now[0] = seconds
        live.tick()
    assert capsys.readouterr().out == ""
    now[0] = 60
    live.tick()
    live.tick()
    assert capsys.readouterr().out.startswith("running  A h=1 seed 2: step 40 of 100, loss 2.35")


def test_slow_reads_of_the_progress_are_less_frequent(fake, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    now, readings = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    live = view_on(fake, Tty())
    read = ProgressReader.read

    def slow(self):
        readings.append(now[0])
        now[0] += 2.0
        return read(self)

    monkeypatch.setattr(ProgressReader, "read", slow)
    live.begin()
    for _ in range(100):
        now[0] += 0.5
        live.tick()
    assert len(readings) == 3  # in 54 seconds
    live.__exit__(None, None, None)
