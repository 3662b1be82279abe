"""A small study, and metrics logs of its runs written by hand."""

import json

import pytest

from ablate.loggers import LOGGERS, Mirror, select_loggers
from tests.report.fakes import Fake, study_from

ONE = """\
study: logged
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 100}
rows: {A: {each: {h: [1]}}}
"""


class Logged:
    """A study whose runs are logged."""

    def __init__(self, folder, text=ONE):
        self.fake = Fake(folder / "results", study_from(folder, text))
        self.printed = []

    def write(self, label, steps, half=""):
        """Write the metrics log of a run up to a step: a loss every 10 steps, a perplexity every
        20.
        """
        folder = self.fake.folder(label, 1)
        folder.path.mkdir(parents=True, exist_ok=True)
        lines = []
        for step in range(10, steps + 1, 10):
            lines.append(
                {"step": step, "tokens": step * 7, "loss": 5.0 - step / 100, "lr": step / 1000}
            )
            if step % 20 == 0:
                lines.append({"step": step, "tokens": step * 7, "dev_perplexity": 50.0 - step / 10})
        folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + half)

    def points(self, label, name):
        """The (step, value) pairs that a logger must have for a name."""
        lines = map(json.loads, self.fake.folder(label, 1).metrics.read_text().splitlines())
        return [(line["step"], pytest.approx(line[name])) for line in lines if name in line]

    def mirror(self, *names, loggers=None):
        return Mirror(
            self.fake.study.name,
            self.fake.planned,
            self.fake.results,
            loggers or select_loggers(names),
            self.printed.append,
        )

    @property
    def folder(self):
        return self.fake.results.study("logged")


@pytest.fixture
def logged(tmp_path):
    return Logged(tmp_path)


@pytest.fixture(params=sorted(LOGGERS))
def kind(request):
    """Each logger, with the real library."""
    pytest.importorskip(request.param)
    return request.param
