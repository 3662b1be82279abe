"""The trainer makes the paper's steps, ends with its budget, and notices divergence."""

import json
import math
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from ablate.data.batches import BatchOrder, collate
from ablate.decoding import beam_search
from ablate.model import build
from ablate.store import checkpoints
from ablate.tasks import Translation
from ablate.training import Diverged, TrainingOutcome
from ablate.training import trainer as trainer_module
from ablate.training.schedule import learning_rate
from tests.training.in_memory import corpus_of


def log_of(training):
    return [json.loads(line) for line in training.metrics.read_text().splitlines()]


def copying(pairs, seed=1, vocab_size=13):
    """Sentences of 2 to 6 tokens that are their own translations."""
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 7, (pairs,), generator=drawn).tolist()
    texts = [
        torch.randint(4, vocab_size, (length,), generator=drawn).tolist() for length in lengths
    ]
    return corpus_of([(text, text) for text in texts], vocab_size)


# --- steps ---


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_steps_equal_those_of_a_plain_torch_loop(training, smoothing, clip):
    """Dense logits, torch's loss and its unfused Adam, without dropout."""
    run = training(
        dropout=0.0,
        label_smoothing=smoothing,
        train_steps=6,
        batch_tokens=200,
        gradient_clipping=clip,
    )
    trainer = run.prepare()
    assert trainer.parts == 1
    model = build(trainer.config, 350, seed=1)
    adam = torch.optim.Adam(
        model.parameters(), betas=(0.9, 0.98), eps=1e-9, foreach=False, fused=False
    )
    split = run.corpus.split("train")
    order = BatchOrder(split, 200, seed=1)
    losses, tokens = [], 0
    for step in range(1, 7):
        batch = collate(split, order.at(step), "source", "target")
        logits = model.logits(model(batch.source, batch.target_in))
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            batch.target_out.flatten(),
            ignore_index=0,
            label_smoothing=smoothing,
        )
        adam.param_groups[0]["lr"] = learning_rate(trainer.config, step, 6)
        adam.zero_grad()
        loss.backward()
        if clip is not None:
            norm = sum(float(p.grad.square().sum()) for p in model.parameters()) ** 0.5
            assert norm > clip
            for parameter in model.parameters():
                parameter.grad *= clip / norm
        adam.step()
        losses.append((loss.detach() * batch.tokens, batch.tokens))
        tokens += batch.tokens
    trainer.fit()
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter, model.get_parameter(name), atol=2e-5, rtol=1e-3)
    logged = [record["loss"] for record in log_of(run) if "loss" in record]
    expected = [
        losses[:3],
        losses[3:5],
        losses[5:],
    ]  # logged at 3, with the evaluation at 5, and at the end
    assert logged == pytest.approx(
        [float(sum(x) / sum(n)) for x, n in (zip(*some, strict=True) for some in expected)]
    )
    assert log_of(run)[-1]["tokens"] == trainer.progress.tokens == tokens


def test_micro_batches_accumulate_to_the_step_of_the_whole_batch(training):
    whole = training("whole", dropout=0.0, train_steps=1, batch_tokens=400).prepare()
    parts = training(
        "parts", dropout=0.0, train_steps=1, batch_tokens=400, micro_batch_tokens=37
    ).prepare()
    passes = []
    parts.model.register_forward_hook(lambda module, args, out: passes.append(out))
    whole.fit()
    parts.fit()
    assert len(passes) > 10
    for name, first in whole.optimizer.states.items():
        second = parts.optimizer.states[name]
        torch.testing.assert_close(first["exp_avg"], second["exp_avg"], rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(whole.last_loss, parts.last_loss, rtol=1e-6, atol=0)


def test_the_size_of_micro_batches_decides_which_entries_are_dropped(training):
    """Each draws its masks in turn, so that a resumed run must keep the size."""
    losses = []
    for tokens in (400, 37):
        run = training(
            f"{tokens}", dropout=0.3, train_steps=1, batch_tokens=400, micro_batch_tokens=tokens
        ).prepare()
        run.fit()
        losses.append(run.last_loss)
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"train_steps": 9},
        {"schedule": "linear", "train_steps": 9},
        {"schedule": "cosine", "train_steps": None},
    ],
    ids=str,
)
def test_the_learning_rate_follows_the_schedule_to_the_end_in_steps_or_epochs(training, settings):
    corpus = corpus_of(
        [([5, 6, 7, 8, 9], [9, 8, 7])] * 31, 13
    )  # an epoch is 9 batches of 22 tokens
    run = training(corpus=corpus, batch_tokens=22, epochs=1, eval_every=100, **settings)
    trainer = run.prepare()
    trainer.fit()
    rates = {record["step"]: record["lr"] for record in log_of(run) if "lr" in record}
    assert rates == {step: learning_rate(trainer.config, step, 9) for step in (3, 6, 9)}
    assert len(set(rates.values())) == 3


def test_weights_are_a_function_of_the_seed(training):
    runs = [training(name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    for run in runs:
        run.fit()
    one, again, other = (run.outcome() for run in runs)
    assert one == again
    assert one["scheduled weights 12"] != other["scheduled weights 12"]


def test_training_does_not_use_torchs_global_generator(training):
    torch.manual_seed(3)
    first = training("a")
    first.fit()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    second = training("b")
    second.fit()
    assert torch.equal(torch.get_rng_state(), before)
    assert first.outcome() == second.outcome()


def test_bf16_trains_close_to_fp32_and_keeps_fp32_weights(training):
    runs = {name: training(name, precision=name, train_steps=6) for name in ("fp32", "bf16")}
    trainers = {name: run.prepare() for name, run in runs.items()}
    for trainer in trainers.values():
        trainer.fit()
    assert trainers["bf16"].last_loss != trainers["fp32"].last_loss
    assert trainers["bf16"].last_loss == pytest.approx(trainers["fp32"].last_loss, rel=5e-3)
    assert {p.dtype for p in trainers["bf16"].model.parameters()} == {torch.float32}


def test_a_copy_task_is_learned_until_unseen_sentences_are_copied(training):
    # Of 400 sentences alone, some are memorized instead, and how many depends on the processor's
    # rounding.
    corpus, unseen = copying(4000), copying(20, seed=2).split("test")["source"]
    run = training(
        corpus=corpus, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8, dropout=0.0, label_smoothing=0.0,
        train_steps=400, batch_tokens=150, warmup_steps=80, eval_every=400, checkpoint_every=400,
    )  # fmt: skip
    trainer = run.prepare()
    trainer.fit()
    losses = [record["loss"] for record in log_of(run) if "loss" in record]
    assert losses[0] > 0.8 * math.log(13)
    assert losses[-1] < 0.2
    sources = torch.zeros(20, 7, dtype=torch.int64)
    for i in range(20):
        sources[i, : len(unseen[i]) + 1] = torch.tensor([*unseen[i].tolist(), 3])
    found = beam_search(trainer.model.eval(), sources, torch.full((20,), 10), beam=1, alpha=0.6)
    copied = sum(hypothesis.tokens == unseen[i].tolist() for i, hypothesis in enumerate(found))
    assert copied >= 15


# --- the end of the budget ---


def test_a_budget_in_steps_is_exact_and_reported(training):
    run = training(train_steps=7)
    trained = run.fit()
    assert (trained.last_step, trained.chosen_step) == (7, 7)
    assert [report.step for report in run.reports] == [*range(1, 8)]
    assert {report.steps for report in run.reports} == {7}
    assert trained.tokens == run.reports[-1].tokens == log_of(run)[-1]["tokens"]


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        ({"epochs": 1}, 9),
        ({"epochs": 3}, 27),
        ({"epochs": 3, "train_steps": 11}, 11),
        ({"train_steps": 11}, 11),
    ],
)
def test_a_budget_in_epochs_is_that_many_passes_and_the_earlier_end_counts(training, budget, steps):
    """31 sentences of 5 tokens and an end mark are 186 tokens: 9 batches of 22."""
    corpus = corpus_of([([5, 6, 7, 8, 9], [9, 8, 7])] * 31, 13)
    run = training(
        corpus=corpus,
        batch_tokens=22,
        eval_every=100,
        **{"train_steps": None, "epochs": None, **budget},
    )
    trained = run.fit()
    assert trained.last_step == run.reports[-1].steps == steps
    if "train_steps" not in budget:
        assert trained.tokens == budget["epochs"] * 31 * 4


SCRIPT = [50.0, 40.0, 30.0, 35.0, 30.0, 20.0]  # the fifth equals the best, and is no improvement


@pytest.mark.parametrize(("patience", "steps", "chosen"), [(1, 8, 6), (2, 10, 6), (3, 16, 12)])
def test_patience_waits_that_many_evaluations_and_chooses_the_best(
    training, patience, steps, chosen
):
    script = iter(SCRIPT)
    run = training(
        patience=patience, eval_every=2, train_steps=16, evaluate=lambda model: next(script, 60.0)
    )
    trained = run.fit()
    assert (trained.last_step, trained.chosen_step) == (steps, chosen)
    kept = checkpoints.scheduled(run.checkpoints, until=chosen)
    assert kept[-1].step == chosen
    assert checkpoints.verified_weights(kept[-1]).exists()


def test_patience_alone_ends_a_training(training):
    script = iter(SCRIPT)
    run = training(
        patience=2, eval_every=2, train_steps=None, evaluate=lambda model: next(script, 60.0)
    )
    assert run.fit().last_step == 10
    assert {report.steps for report in run.reports} == {None}


def test_the_evaluation_at_the_last_step_may_be_the_best(training):
    script = iter(SCRIPT)
    run = training(
        patience=3, eval_every=2, train_steps=11, evaluate=lambda model: next(script, 60.0)
    )
    trained = run.fit()  # evaluated at 2, 4, 6, 8, 10 and, as the last step, 11: 20.0
    assert (trained.last_step, trained.chosen_step) == (11, 11)
    assert checkpoints.scheduled(run.checkpoints)[-1].step == 11


def test_a_finished_training_makes_no_further_step(training):
    run = training()
    first = run.fit()
    before = run.outcome()
    assert run.fit() == first == TrainingOutcome(12, 12, first.tokens)
    assert run.reports[-1].step == 12
    assert len(run.reports) == 12
    assert run.outcome() == before


# --- evaluation ---


def test_the_dev_split_is_evaluated_unless_other_items_are_passed(training, toy):
    whole = training().prepare().dev_items
    assert len(whole) == len(toy.split("dev")) > 0
    few = toy.split("train")
    assert training("few", dev=few).prepare().dev_items is few


def test_evaluations_happen_when_due_and_at_the_end(training):
    run = training(evaluate=lambda model: 7.0)
    run.fit()
    evaluated = {
        record["step"]: record["dev_perplexity"]
        for record in log_of(run)
        if "dev_perplexity" in record
    }
    assert evaluated == {5: 7.0, 10: 7.0, 12: 7.0}
    assert [report.perplexity for report in run.reports] == [None] * 4 + [7.0] * 8


def test_the_interval_of_evaluations_does_not_change_the_weights(training, toy):
    def evaluate(model):
        model.eval()
        with torch.no_grad():
            return float(model(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])).abs().mean())

    weights = set()
    for every in (1, 4, 7, 100):
        run = training(f"{every}", eval_every=every, evaluate=evaluate)
        run.fit()
        weights.add(run.outcome()["scheduled weights 12"])
    assert len(weights) == 1


# --- divergence ---


@pytest.mark.parametrize("log_every", [1, 4])
def test_a_loss_that_is_nan_is_noticed_at_the_next_log_line(training, monkeypatch, log_every):
    monkeypatch.setattr(trainer_module, "LOG_EVERY", log_every)
    run = training()
    trainer = run.prepare()
    with torch.no_grad():
        trainer.model.encoder[0].feed_forward.W_1.weight[0, 0] = math.nan
    with pytest.raises(Diverged, match="not a finite number") as end:
        trainer.fit()
    assert end.value.step == log_every
    assert end.value.reason == "the loss is not a finite number"
    assert log_of(run) == []


def test_an_exploded_loss_diverges_and_a_bad_one_does_not(training):
    """Tied embeddings scaled by 10,000 scale logits and loss alike."""
    run = training()
    trainer = run.prepare()
    with torch.no_grad():
        trainer.model.embedding.weight *= 10_000
    with pytest.raises(Diverged, match=r"exploded to \d+\.\d nats a token") as end:
        trainer.fit()
    assert end.value.step == 3

    uniform = training("uniform").prepare()
    with torch.no_grad():
        uniform.model.embedding.weight.zero_()
    assert uniform.fit().last_step == 12


def test_other_terms_of_the_loss_are_no_divergence(training):
    """Divergence is by cross-entropy, whatever the weight of z-loss."""
    settings = {"z_loss": 1.0, "learning_rate": 1e-9, "schedule": "constant"}
    run = training(**settings, task=Translation())
    assert run.fit().last_step == 12
    losses = [line["loss"] for line in log_of(run) if "loss" in line]
    perplexities = [line["dev_perplexity"] for line in log_of(run) if "dev_perplexity" in line]
    assert min(losses) > 4 * math.log(350)
    assert max(perplexities) < 1000

    exploded = training("exploded", **settings, task=Translation()).prepare()
    with torch.no_grad():
        exploded.model.embedding.weight *= 10_000
    with pytest.raises(Diverged, match=r"the cross-entropy exploded to \d+\.\d nats a token"):
        exploded.fit()


def test_an_infinite_dev_perplexity_diverges(training):
    for value in (1e101, math.inf, math.nan):
        with pytest.raises(Diverged, match="dev loss is not below 230 nats") as end:
            training(f"{value}", evaluate=lambda model, value=value: value).fit()
        assert end.value.step == 5


def test_the_log_of_a_diverged_run_is_on_the_disk_and_closed(training, monkeypatch):
    """The result names its hash, and the worker goes on with other runs."""
    values, synced, fsync = [100.0, math.inf], {}, os.fsync
    run = training(eval_every=4, checkpoint_every=100, evaluate=lambda model: values.pop(0))

    def noted(file):
        fsync(file)
        synced[os.fstat(file).st_ino] = os.fstat(file).st_size

    trainer = run.prepare()
    monkeypatch.setattr(os, "fsync", noted)
    with pytest.raises(Diverged):
        trainer.fit()
    status = run.metrics.stat()
    assert log_of(run)[-1]["step"] == 8
    assert synced[status.st_ino] == status.st_size
    assert not [
        path
        for path in Path("/proc/self/fd").iterdir()
        if path.exists() and path.samefile(run.metrics)
    ]


# --- kept checkpoints ---


def held(run):
    """Steps with weights, and steps that can be resumed."""
    steps = [
        {int(f.name.partition(".")[0]) for f in run.checkpoints.glob(f"*.{part}.safetensors")}
        for part in ("weights", "state")
    ]
    assert {c.step for c in checkpoints.valid(run.checkpoints)} == steps[0]
    return steps


def test_saves_by_the_clock_change_neither_weights_nor_the_averaged_checkpoints(training):
    quiet, busy = training("quiet"), training("busy", checkpoint_minutes=1e-9)
    quiet.fit()
    busy.fit()
    assert quiet.outcome() == busy.outcome()
    assert [c.step for c in checkpoints.scheduled(busy.checkpoints)] == [8, 12]
    assert held(busy) == [{8, 11, 12}, {11, 12}]
