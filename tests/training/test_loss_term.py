"""A user's own term of the loss: value and gradients against a plain expression, training with it,
and what is refused.
"""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ablate.checks.training import check_training
from ablate.config.resolve import resolve_row
from ablate.custom.loading import load_function
from ablate.custom.source import source_hash
from ablate.data.contexts import ContextBatch
from ablate.errors import StudyError
from ablate.store import Results
from ablate.study import read_study, runs_of
from ablate.tasks import LanguageModel
from tests.cli.inside import inside
from tests.tasks.language import small

PENALTY = """\
def Mine(logits, targets):
    \"\"\"A tenth of the negative entropy (Pereyra et al., 2017).\"\"\"
    logs = logits.log_softmax(1)
    return 0.1 * (logs.exp() * logs).sum()
"""
STUDY = """\
study: s
task: language-model
data: {corpus: toy}
base: {N: 1, d_model: 16, d_ff: 16, h: 2, context: 16, batch_tokens: 128, train_steps: 4,
  warmup_steps: 2, generated_tokens: 1}
rows: {A: {set: {loss_term: "mine:Mine"}}}
"""


def own(folder, source):
    """A pinned reference to `Mine` of this source."""
    digest = source_hash(source.encode())
    (folder / f"{digest}.py").write_text(source)
    return f"mine:Mine@{digest}"


def losses(model, smoothing=0.1):
    inputs = np.array([[2, 9, 8, 7, 9, 0], [5, 6, 7, 8, 9, 10]])
    counts = inputs > 0
    targets = np.roll(inputs, 3, 1)[counts] + 4
    batch = ContextBatch.from_arrays(inputs, targets, counts, np.arange(counts.sum()))
    loss, tokens = LanguageModel().loss_terms(model, batch, smoothing)
    logits = model.logits(batch.select_targets(model.read(batch.inputs)))
    assert tokens == 11
    return loss, logits, batch.targets


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


def test_the_loss_and_its_gradients_are_those_of_a_plain_expression(tmp_path):
    model = small()[1].double().requires_grad_(True)
    config = resolve_row({"loss_term": own(tmp_path, PENALTY)})
    check_training(config, tmp_path)
    model.loss_term = load_function(config.loss_term, tmp_path)
    loss, logits, targets = losses(model)
    logs = logits.log_softmax(1)
    plain = F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
    plain = plain + 0.1 * (logs.exp() * logs).sum()
    assert loss.item() == pytest.approx(plain.item(), rel=1e-12)
    for ours, theirs in zip(gradients(model, loss), gradients(model, plain), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-11)


def test_a_run_trains_with_its_term_and_keeps_its_source(tmp_path):
    (tmp_path / "mine.py").write_text(PENALTY)
    (tmp_path / "s.yaml").write_text(STUDY)
    done = inside("run", tmp_path / "s.yaml", "--results", tmp_path / "r", "--device", "cpu")
    assert done.code == 0, done.err
    study = read_study(tmp_path / "s.yaml")
    base, row = (runs_of(study).of(row)[0].id for row in study.rows)
    weights = [
        next((Results(tmp_path / "r").run(id).checkpoints).glob("*.weights.safetensors"))
        for id in (base, row)
    ]
    assert base != row
    assert weights[0].read_bytes() != weights[1].read_bytes()
    assert [file.read_text() for file in Results(tmp_path / "r").run(row).sources.iterdir()] == [
        PENALTY
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def Mine(logits, targets):\n    return logits.logsumexp(1).mean()\n", "return the sum"),
        ("def Mine(logits, targets):\n    return logits.sum().detach()\n", "gradient is cut off"),
        ("def Mine(logits, targets):\n    return 0.0\n", "returns float, not a finite number"),
        ("def Mine(logits, targets):\n    return logits.sum(1)\n", "returns shape (5,), not"),
        ("def Mine(logits, targets):\n    return (logits * 0).log().sum()\n", "returns -inf, not"),
        ("import random\ndef Mine(logits, targets):\n    return random.random() * logits.sum()\n",
         "another number when called again"),
        ("def Mine(logits):\n    return logits.sum()\n", "TypeError"),
        ("class Mine:\n    pass\n", "is not a function"),
    ],
)  # fmt: skip
def test_a_term_that_does_not_fit_is_refused_before_training(tmp_path, source, message):
    with pytest.raises(StudyError) as caught:
        check_training(resolve_row({"loss_term": own(tmp_path, source)}), tmp_path)
    (line,) = caught.value.lines
    assert re.match(r"mine\.py:[12]: mine:Mine", line)
    assert message in line


def test_a_task_with_a_loss_of_its_own_refuses_a_term():
    class Own(LanguageModel):
        def loss_terms(self, model, batch, label_smoothing):
            return super().loss_terms(model, batch, label_smoothing)

    config = resolve_row({**LanguageModel.defaults, "loss_term": "mine:Mine@0123456789ab"})
    data = Own().resolve_data({"corpus": "toy"})
    assert ("loss_term",) in [fault.fields for fault in Own().check(data, config)]
    assert ("loss_term",) not in [fault.fields for fault in LanguageModel().check(data, config)]
