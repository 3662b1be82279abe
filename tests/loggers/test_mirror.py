"""Copying metrics logs to loggers: every line once, without effect on the training."""

import threading
from dataclasses import replace

import pytest

from ablate.errors import UsageError, listed
from ablate.loggers import LOGGERS, mirror, select_loggers
from ablate.study import runs_of
from tests.commands import commands


class Kept:
    """A logger that keeps points and scores in memory, by the run's name."""

    def __init__(self):
        self.points, self.scores, self.outcomes, self.opened = {}, {}, {}, []

    def __call__(self, folder, run):
        self.opened.append(run)
        self.points[run.name] = []
        return _Kept(self, run.name)


class _Kept:
    def __init__(self, kept, name):
        self.kept, self.name = kept, name

    def log(self, points):
        self.kept.points[self.name] += points

    def finish(self, scores, outcome):
        self.kept.scores[self.name] = scores
        self.kept.outcomes[self.name] = outcome


class Course:
    """Stands in for the mirror's stop event: runs one function between two reads, then stops."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def wait(self, seconds):
        if self.steps:
            self.steps.pop(0)()
            return False
        return True

    def set(self):
        pass


@pytest.fixture
def kept():
    return Kept()


def follow(logged, kept, *steps):
    found = logged.mirror(loggers={"kept": kept})
    found.ending = Course(*steps)
    with found:
        found.threads["kept"].join()


def test_lines_that_are_cut_back_and_written_again_are_sent_once(logged, kept):
    follow(
        logged,
        kept,
        lambda: logged.write("base", 20),
        lambda: logged.write("base", 40, half='{"step"'),
        lambda: logged.write("base", 20),  # a worker was killed: cut back to its checkpoint
        lambda: logged.write("base", 30),
        lambda: logged.write("base", 60),
        lambda: logged.fake.done("base", 1, 5.0, 25.0),
    )
    losses = [(step, values["loss"]) for step, values in kept.points["base"] if "loss" in values]
    assert losses == logged.points("base", "loss")
    assert [step for step, _ in kept.points["base"]] == [10, 20, 20, 30, 40, 40, 50, 60, 60]
    assert kept.scores == {"base": {"final_ppl": 5.0, "final_bleu": 25.0}}
    assert logged.printed == []


def test_a_run_is_opened_with_its_first_line_and_its_settings(logged, kept):
    follow(logged, kept, lambda: logged.write("A h=1", 10))
    (run,) = kept.opened
    assert (run.name, run.row, run.seed, run.study, run.id) == (
        "A h=1", "A h=1", 1, "logged", logged.fake.folder("A h=1", 1).id,
    )  # fmt: skip
    assert run.settings["n_heads"] == run.settings["seed"] == 1
    assert kept.scores == {"A h=1": None}  # closed, but not as finished


@pytest.mark.parametrize("damaged", ["result", "metrics"])
def test_a_damaged_file_of_one_run_does_not_end_the_logging_of_others(logged, kept, damaged):
    for label in ("base", "A h=1"):
        logged.write(label, 20)
        logged.fake.done(label, 1, 5.0, 25.0)
    getattr(logged.fake.folder("base", 1), damaged).write_text('{"step": 10}\n[1, 2]\nx\n')
    follow(logged, kept)
    assert kept.scores["A h=1"] == {"final_ppl": 5.0, "final_bleu": 25.0}
    assert logged.printed == []


@pytest.mark.parametrize("where", ["start", "log", "finish"])
def test_a_logger_that_fails_is_reported_once_and_stopped(logged, kept, where):
    def fail(*_):
        raise ConnectionError("no such server\nand a long story")

    logged.write("base", 20)
    broken = {
        "start": lambda: type("Broken", (Kept,), {"__call__": fail})(),
        "log": lambda: _opening(type("Sink", (_Kept,), {"log": fail})),
        "finish": lambda: _opening(type("Sink", (_Kept,), {"finish": fail})),
    }[where]()
    found = logged.mirror(loggers={"broken": broken, "kept": kept})
    with found:
        pass
    assert logged.printed == [
        "--log broken: ConnectionError: no such server; training goes on without it"
    ]
    assert len(kept.points["base"]) == 3  # the other run is still logged


def test_the_password_of_a_server_is_not_printed(logged, kept):
    def fail(*_):
        raise ConnectionError("no answer from http://me:pass@tracking.lab:5000/api?token=abc")

    logged.write("base", 20)
    broken = type("Broken", (Kept,), {"__call__": fail})()
    with logged.mirror(loggers={"mlflow": broken}):
        pass
    assert logged.printed == [
        "--log mlflow: ConnectionError: no answer from "
        "http://…@tracking.lab:5000/api?token=…; training goes on without it"
    ]


def _opening(sink):
    logger = Kept()
    return lambda folder, run: sink(logger, logger.points.setdefault(run.name, []) or run.name)


def test_a_logger_that_hangs_is_not_waited_for(logged, monkeypatch):
    monkeypatch.setattr(mirror, "END_SECONDS", 0.05)
    released = threading.Event()
    logged.write("base", 20)
    found = logged.mirror(loggers={"slow": lambda folder, run: released.wait(30)})
    with found:
        pass
    released.set()
    assert logged.printed == [
        "--log slow: no answer; the next `ablate run --log slow` sends the rest"
    ]
    assert found.threads["slow"].daemon
    found.threads["slow"].join()


def test_the_help_of_run_names_every_logger():
    (log,) = (option for option in commands()["run"].params if option.name == "log")
    assert f"Also log to {listed(LOGGERS)}." in log.help


def test_a_logger_without_its_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("ablate.loggers.dashboards.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"--log: wandb is not installed; pip install wandb"):
        select_loggers(["wandb"])


def test_final_scores_are_those_of_the_studys_metrics(logged, kept):
    study = logged.fake.study
    study = replace(study, metrics=replace(study.metrics, shown=("chrf",)))
    logged.fake.planned = runs_of(study)
    logged.write("base", 20)
    logged.fake.done("base", 1, 5.0, 25.0)
    follow(logged, kept)
    assert kept.scores["base"] == {
        "final_ppl": 5.0
    }  # chrF is computed after the training, from the translations
