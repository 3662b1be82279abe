"""The loop makes the paper's steps, ends where its budget says, and notices what went wrong."""

import json
import math

import pytest
import torch
import torch.nn.functional as F

from ablate.data.batches import BatchOrder
from ablate.data.seq2seq import collate
from ablate.decoding import beam_search
from ablate.model import build
from ablate.store import checkpoints
from ablate.training import Diverged, Trained
from ablate.training import loop as training_loop
from ablate.training.schedule import learning_rate
from tests.training.in_memory import corpus_of


def records(training):
    return [json.loads(line) for line in training.metrics.read_text().splitlines()]


def copying(pairs, seed=1, vocab_size=13):
    """Sentences of 2 to 6 tokens whose translation is themselves."""
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 7, (pairs,), generator=drawn).tolist()
    texts = [torch.randint(4, vocab_size, (length,), generator=drawn).tolist() for length in lengths]
    return corpus_of([(text, text) for text in texts], vocab_size)


# --- steps ---


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_steps_are_those_of_a_plain_loop_over_torchs_parts(training, smoothing, clip):
    """Dense logits, torch's own loss and its unfused Adam, without the dropout."""
    run = training(dropout=0.0, label_smoothing=smoothing, train_steps=6, batch_tokens=200, gradient_clipping=clip)
    trainer = run.trainer()
    model = build(trainer.config, 350, seed=1)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, foreach=False, fused=False)
    split = run.corpus.split("train")
    order = BatchOrder(split, 200, seed=1)
    losses, tokens = [], 0
    for step in range(1, 7):
        batch = collate(split, order.at(step), "source", "target")
        logits = model.logits(model(batch.source, batch.target_in))
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=0, label_smoothing=smoothing
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
    trainer.run()
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter, model.get_parameter(name), atol=2e-5, rtol=1e-3)
    logged = [record["loss"] for record in records(run) if "loss" in record]
    expected = [losses[:3], losses[3:5], losses[5:]]  # logged at 3, with the evaluation at 5, and at the end
    assert logged == pytest.approx([float(sum(x) / sum(n)) for x, n in (zip(*some, strict=True) for some in expected)])
    assert records(run)[-1]["tokens"] == trainer.at.tokens == tokens


def test_a_batch_in_parts_is_the_step_of_the_whole_batch(training):
    whole = training("whole", dropout=0.0, train_steps=1, batch_tokens=400).trainer()
    parts = training("parts", dropout=0.0, train_steps=1, batch_tokens=400, micro_batch_tokens=37).trainer()
    passes = []
    parts.model.register_forward_hook(lambda module, args, out: passes.append(out))
    whole.run()
    parts.run()
    assert len(passes) > 10
    for name, first in whole.optimizer.moments.items():
        second = parts.optimizer.moments[name]
        torch.testing.assert_close(first["exp_avg"], second["exp_avg"], rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(whole.last_loss, parts.last_loss, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "settings",
    [{"train_steps": 9}, {"schedule": "linear", "train_steps": 9}, {"schedule": "cosine", "train_steps": None}],
    ids=str,
)
def test_the_rate_of_each_step_is_that_of_the_schedule_up_to_the_end_whatever_sets_it(training, settings):
    corpus = corpus_of([([5, 6, 7, 8, 9], [9, 8, 7])] * 31, 13)  # an epoch is 9 batches of 22 tokens
    run = training(corpus=corpus, batch_tokens=22, epochs=1, eval_every=100, **settings)
    trainer = run.trainer()
    trainer.run()
    rates = {record["step"]: record["lr"] for record in records(run) if "lr" in record}
    assert rates == {step: learning_rate(trainer.config, step, 9) for step in (3, 6, 9)}
    assert len(set(rates.values())) == 3


def test_the_same_seed_trains_the_same_bytes_and_another_seed_others(training):
    runs = [training(name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    for run in runs:
        run.run()
    one, again, other = (run.outcome() for run in runs)
    assert one == again
    assert one["scheduled weights 12"] != other["scheduled weights 12"]


def test_torchs_global_generator_has_no_part_in_training(training):
    torch.manual_seed(3)
    first = training("a")
    first.run()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    second = training("b")
    second.run()
    assert torch.equal(torch.get_rng_state(), before)
    assert first.outcome() == second.outcome()


def test_bf16_trains_near_fp32_and_keeps_fp32_weights(training):
    runs = {name: training(name, precision=name, train_steps=6) for name in ("fp32", "bf16")}
    trainers = {name: run.trainer() for name, run in runs.items()}
    for trainer in trainers.values():
        trainer.run()
    assert trainers["bf16"].last_loss != trainers["fp32"].last_loss
    assert trainers["bf16"].last_loss == pytest.approx(trainers["fp32"].last_loss, rel=5e-3)
    assert {p.dtype for p in trainers["bf16"].model.parameters()} == {torch.float32}


def test_a_copy_task_is_learned_until_unseen_sentences_are_copied(training):
    corpus, unseen = copying(400), copying(20, seed=2).split("test")["source"]
    run = training(
        corpus=corpus, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8, dropout=0.0, label_smoothing=0.0,
        train_steps=400, batch_tokens=150, warmup_steps=80, eval_every=400, checkpoint_every=400,
    )  # fmt: skip
    trainer = run.trainer()
    trainer.run()
    losses = [record["loss"] for record in records(run) if "loss" in record]
    assert losses[0] > 0.8 * math.log(13)
    assert losses[-1] < 0.2
    sources = torch.zeros(20, 7, dtype=torch.int64)
    for i in range(20):
        sources[i, : len(unseen[i]) + 1] = torch.tensor([*unseen[i].tolist(), 3])
    found = beam_search(trainer.model.eval(), sources, torch.full((20,), 10), beam=1, alpha=0.6)
    copied = sum(hypothesis.tokens == unseen[i].tolist() for i, hypothesis in enumerate(found))
    assert copied >= 15


# --- the end of the budget ---


def test_a_budget_in_steps_is_kept_and_reported(training):
    run = training(train_steps=7)
    trained = run.run()
    assert (trained.steps, trained.chosen) == (7, 7)
    assert [report.step for report in run.told] == [*range(1, 8)]
    assert {report.steps for report in run.told} == {7}
    assert trained.tokens == run.told[-1].tokens == records(run)[-1]["tokens"]


@pytest.mark.parametrize(
    ("budget", "steps"),
    [({"epochs": 1}, 9), ({"epochs": 3}, 27), ({"epochs": 3, "train_steps": 11}, 11), ({"train_steps": 11}, 11)],
)
def test_a_budget_in_epochs_is_that_many_passes_and_the_first_end_counts(training, budget, steps):
    """31 sentences of 5 tokens and an end mark are 186 tokens: 9 batches of 22."""
    corpus = corpus_of([([5, 6, 7, 8, 9], [9, 8, 7])] * 31, 13)
    run = training(corpus=corpus, batch_tokens=22, eval_every=100, **{"train_steps": None, "epochs": None, **budget})
    trained = run.run()
    assert trained.steps == run.told[-1].steps == steps
    if "train_steps" not in budget:
        assert trained.tokens == budget["epochs"] * 31 * 4


SCRIPT = [50.0, 40.0, 30.0, 35.0, 30.0, 20.0]  # best at the third, and the fifth is no better


@pytest.mark.parametrize(("patience", "steps", "chosen"), [(1, 8, 6), (2, 10, 6), (3, 16, 12)])
def test_patience_waits_that_many_evaluations_and_goes_back_to_the_best(training, patience, steps, chosen):
    script = iter(SCRIPT)
    run = training(patience=patience, eval_every=2, train_steps=16, evaluate=lambda model: next(script, 60.0))
    trained = run.run()
    assert (trained.steps, trained.chosen) == (steps, chosen)
    kept = checkpoints.scheduled(run.checkpoints, until=chosen)
    assert kept[-1].step == chosen
    assert checkpoints.verified_weights(kept[-1]).exists()


def test_patience_without_an_end_in_steps_ends_by_itself(training):
    script = iter(SCRIPT)
    run = training(patience=2, eval_every=2, train_steps=None, evaluate=lambda model: next(script, 60.0))
    assert run.run().steps == 10
    assert {report.steps for report in run.told} == {None}


def test_the_budget_may_end_while_the_last_evaluation_is_the_best(training):
    script = iter(SCRIPT)
    run = training(patience=3, eval_every=2, train_steps=11, evaluate=lambda model: next(script, 60.0))
    trained = run.run()  # evaluated at 2, 4, 6, 8, 10 and, as the last step, 11: 20.0
    assert (trained.steps, trained.chosen) == (11, 11)
    assert checkpoints.scheduled(run.checkpoints)[-1].step == 11


def test_a_budget_already_spent_trains_nothing_more(training):
    run = training()
    first = run.run()
    before = run.outcome()
    assert run.run() == first == Trained(12, 12, first.tokens)
    assert run.told[-1].step == 12
    assert len(run.told) == 12
    assert run.outcome() == before


# --- evaluation ---


def test_evaluations_are_made_when_due_and_at_the_end(training):
    run = training(evaluate=lambda model: 7.0)
    run.run()
    evaluated = {record["step"]: record["dev_perplexity"] for record in records(run) if "dev_perplexity" in record}
    assert evaluated == {5: 7.0, 10: 7.0, 12: 7.0}
    assert [report.perplexity for report in run.told] == [None] * 4 + [7.0] * 8


def test_how_often_is_evaluated_does_not_change_what_is_trained(training, toy):
    def evaluate(model):
        model.eval()
        with torch.no_grad():
            return float(model(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])).abs().mean())

    weights = set()
    for every in (1, 4, 7, 100):
        run = training(f"{every}", eval_every=every, evaluate=evaluate)
        run.run()
        weights.add(run.outcome()["scheduled weights 12"])
    assert len(weights) == 1


# --- divergence ---


@pytest.mark.parametrize("log_every", [1, 4])
def test_a_loss_that_is_not_a_number_is_noticed_at_the_next_look(training, monkeypatch, log_every):
    monkeypatch.setattr(training_loop, "LOG_EVERY", log_every)
    run = training()
    trainer = run.trainer()
    with torch.no_grad():
        trainer.model.encoder[0].feed_forward.W_1.weight[0, 0] = math.nan
    with pytest.raises(Diverged, match="not a finite number") as end:
        trainer.run()
    assert end.value.step == log_every
    assert end.value.reason == "the loss is not a finite number"
    assert records(run) == []


def test_a_loss_that_explodes_is_told_from_one_that_is_merely_bad(training):
    """With tied embeddings ten thousand times too long, logits and loss are too."""
    run = training()
    trainer = run.trainer()
    with torch.no_grad():
        trainer.model.embedding.weight *= 10_000
    with pytest.raises(Diverged, match=r"the loss exploded to \d+\.\d nats a token") as end:
        trainer.run()
    assert end.value.step == 3

    uniform = training("uniform").trainer()
    with torch.no_grad():
        uniform.model.embedding.weight.zero_()
    assert uniform.run().steps == 12


def test_a_dev_perplexity_that_is_not_finite_is_a_divergence(training):
    for value in (math.inf, math.nan):
        with pytest.raises(Diverged, match="dev perplexity") as end:
            training(f"{value}", evaluate=lambda model, value=value: value).run()
        assert end.value.step == 5


# --- what is kept ---


def held(run):
    """Steps with weights, and steps that can be resumed."""
    steps = [
        {int(f.name.partition(".")[0]) for f in run.checkpoints.glob(f"*.{part}.safetensors")}
        for part in ("weights", "state")
    ]
    assert {g.step for g in checkpoints.generations(run.checkpoints)} == steps[0]
    return steps


@pytest.mark.parametrize(
    ("keep", "weights"),
    [(1, {10, 12}), (2, {10, 12}), (3, {8, 10, 12}), (5, {4, 6, 8, 10, 12}), (20, {2, 4, 6, 8, 10, 12})],
)
def test_the_window_of_averaging_is_kept_and_two_generations_to_resume(training, keep, weights):
    run = training(checkpoint_every=2, keep_checkpoints=keep)
    run.run()
    assert held(run) == [weights, {10, 12}]


def test_the_window_before_the_best_is_kept_while_patience_waits(training):
    script = iter(SCRIPT)
    run = training(patience=3, eval_every=2, checkpoint_every=100, train_steps=10, evaluate=lambda model: next(script))
    run.run()  # best at 6; keep_checkpoints is 2
    assert held(run) == [{4, 6, 8, 10}, {8, 10}]


def test_saves_by_the_clock_change_neither_weights_nor_the_window(training):
    quiet, busy = training("quiet"), training("busy", checkpoint_minutes=1e-9)
    quiet.run()
    busy.run()
    assert quiet.outcome() == busy.outcome()
    assert [g.step for g in checkpoints.scheduled(busy.checkpoints)] == [8, 12]
    assert held(busy) == [{8, 11, 12}, {11, 12}]
