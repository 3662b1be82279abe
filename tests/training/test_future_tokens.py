"""Training with heads of future tokens: resumed, in micro-batches, and on several ranks."""

import pytest

from ablate.config.language_data import LanguageData
from ablate.data.prepare import prepare
from ablate.errors import Interrupted
from ablate.tasks import LanguageModel
from tests.training.conftest import Training
from tests.training.test_ranks import together

HEADS = {
    "architecture": "decoder-only", "context": 12, "label_smoothing": 0.1, "future_tokens": 3,
    "future_loss": 0.5, "batch_tokens": 96, "n_experts": 2, "norm_position": "pre",
}  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    return prepare(LanguageData.resolve({"corpus": "toy"}), folder, folder)


@pytest.fixture
def trained(tmp_path, text):
    """Train in a folder to the end, after stops at some steps; the files that it leaves."""

    def trained(name, stops=(), size=1, parts=1, micro_batch_tokens=10_000, **fields):
        def work(ranks):
            for stop in (*stops, 0):
                run = Training(
                    tmp_path / name, text, {**HEADS, **fields}, task=LanguageModel(), ranks=ranks,
                    parts=parts, micro_batch_tokens=micro_batch_tokens, stop_after=(stop,),
                )  # fmt: skip
                try:
                    run.fit()
                except Interrupted:
                    assert stop
            return run

        return together(size, work)[0]

    return trained


@pytest.mark.parametrize("micro_batch_tokens", [24, 10_000])
def test_resuming_is_exact(trained, micro_batch_tokens):
    whole = trained("whole", micro_batch_tokens=micro_batch_tokens)
    cut = trained("cut", (3, 9), micro_batch_tokens=micro_batch_tokens)
    assert cut.log_lines == ["resumed at step 9"]
    assert cut.outcome() == whole.outcome()


def test_any_number_of_ranks_gives_the_same_bytes(trained):
    alone, two = trained("1", parts=4), trained("2", size=2, parts=4)
    assert alone.outcome() == two.outcome()
    assert alone.outcome()["newest"] == 12


def test_a_loss_of_many_tokens_is_no_divergence(trained):
    """At the beginning each of 17 predictions has a loss of about ln V."""
    run = trained("many", future_tokens=16, future_loss=1.0, learning_rate=1e-6)
    assert run.trainer.last_loss > 4 * 5.56
