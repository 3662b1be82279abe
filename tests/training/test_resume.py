"""A run that is interrupted, killed or damaged, and then resumed, writes the bytes it would have written anyway."""

import pytest
import torch

from ablate.errors import Interrupted
from ablate.store import checkpoints
from ablate.training import loop as training_loop
from tests.training.conftest import LOG_EVERY, Training

STEPS = 12


def evaluate(model):
    """A function of the weights that uses the model as a real evaluation does."""
    model.eval()
    with torch.no_grad():
        return 100.0 + float(model(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]]))[0, 0, 0])


def interrupted(run, step):
    run.stop_after = (step,)
    with pytest.raises(Interrupted):
        run.run()
    run.stop_after = ()


@pytest.fixture(scope="module")
def undisturbed_run(tmp_path_factory, toy):
    """A run that nothing happens to."""
    run = Training(tmp_path_factory.mktemp("undisturbed"), toy, evaluate=evaluate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop, "LOG_EVERY", LOG_EVERY)
        run.run()
    return run


@pytest.fixture(scope="module")
def undisturbed(undisturbed_run):
    """What it leaves behind."""
    return undisturbed_run.outcome()


@pytest.mark.parametrize("step", range(1, STEPS))
def test_an_interrupted_run_ends_as_if_it_had_not_been(training, undisturbed, step):
    run = training(evaluate=evaluate)
    interrupted(run, step)
    assert run.told[-1].step == step
    run.run()
    assert run.said == [f"resumed at step {step}"]
    assert [report.step for report in run.told] == [*range(1, STEPS + 1)]
    assert run.outcome() == undisturbed


def test_a_run_interrupted_at_every_step_ends_as_if_it_had_not_been(training, undisturbed):
    run = training(evaluate=evaluate)
    for step in range(1, STEPS):
        interrupted(run, step)
    run.run()
    assert run.outcome() == undisturbed


def test_a_resumed_run_tells_what_it_would_have_told_loss_and_perplexity_of_before_included(training, undisturbed_run):
    run = training(evaluate=evaluate)
    for step in range(1, STEPS):
        interrupted(run, step)
    run.run()
    assert {report.perplexity for report in undisturbed_run.told} != {None}
    assert run.told == undisturbed_run.told


def test_a_stop_asked_for_after_the_last_step_comes_too_late(training, undisturbed):
    run = training(evaluate=evaluate, stop_after=(STEPS,))
    assert run.run().steps == STEPS
    assert run.outcome() == undisturbed


def test_a_run_killed_between_checkpoints_goes_back_to_the_last_and_ends_alike(training, undisturbed):
    run = training(evaluate=evaluate)

    class Killed(BaseException):
        pass

    def tell(report):
        run.told.append(report)
        if report.step == 11:
            raise Killed

    trainer = run.trainer()
    trainer.tell = tell
    with pytest.raises(Killed):
        trainer.run()
    assert run.metrics.read_bytes() != b""
    run.run()
    assert run.said == ["resumed at step 8"]
    assert run.outcome() == undisturbed


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("encoding", ["learned", "none"])
def test_resuming_is_exact_for_every_encoding_and_precision_and_in_micro_batches(training, precision, encoding):
    settings = {"precision": precision, "positional_encoding": encoding, "micro_batch_tokens": 29}
    whole, parts = training("whole", **settings), training("parts", **settings)
    whole.run()
    interrupted(parts, 7)
    parts.run()
    assert parts.outcome() == whole.outcome()


ROOMY = {"max_positions": 200}  # for both sides in a row
VARIANTS = {
    "decoder-only": {"architecture": "decoder-only", **ROOMY},
    "lstm": {"mixer": "lstm"},
    "decoder-only lstm": {"architecture": "decoder-only", "mixer": "lstm", **ROOMY},
    "relative": {"positional_encoding": "relative", "relative_clip": 3, "attention_dropout": 0.2},
    "t5": {"positional_encoding": "t5", "activation_dropout": 0.2, "n_kv_heads": 1},
    "adamw": {
        "optimizer": "adamw", "weight_decay": 0.1, "gradient_clipping": 0.3, "schedule": "cosine",
        "norm": "rmsnorm", "norm_position": "pre", "tied_embeddings": "none",
    },
    "linear": {"attention": "linear", "activation": "swiglu", "tied_embeddings": "decoder", "attention_bias": True},
    "rope": {"positional_encoding": "rope", "d_k": 6, "attention": "local", "attention_window": 2, "residual": False},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_resuming_is_exact_for_every_kind_of_variant(training, variant):
    settings = {**VARIANTS[variant], "evaluate": evaluate, "micro_batch_tokens": 29}
    whole, parts = training("whole", **settings), training("parts", **settings)
    whole.run()
    interrupted(parts, 3)  # within the warm-up
    interrupted(parts, 9)
    parts.run()
    assert parts.said == ["resumed at step 3", "resumed at step 9"]
    assert parts.outcome() == whole.outcome()


SCRIPT = {2: 50.0, 4: 40.0, 6: 30.0, 8: 35.0, 10: 30.0}


@pytest.mark.parametrize("step", [5, 6, 7, 8, 9])
def test_patience_remembers_across_an_interruption(training, step):
    """Also at step 6 itself, the best, whose checkpoint must go on counting as one that was due."""
    run = training(patience=2, eval_every=2, checkpoint_every=100, train_steps=STEPS)
    run.evaluate = lambda model: SCRIPT[run.told[-1].step + 1]
    interrupted(run, step)
    trained = run.run()
    assert (trained.steps, trained.chosen) == (10, 6)
    assert [g.step for g in checkpoints.scheduled(run.checkpoints)] == [4, 6, 8, 10]


@pytest.mark.parametrize("part", ["weights", "state"])
def test_a_damaged_newest_generation_is_set_aside_and_said_and_the_one_before_it_used(training, undisturbed, part):
    run = training(evaluate=evaluate)
    interrupted(run, 9)
    newest, _ = checkpoints.newest(run.checkpoints)
    path = getattr(newest, part)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    run.run()
    damage, resumed = run.said
    assert damage.startswith(f"{path}: is damaged or missing")
    assert damage.endswith("the checkpoint before it is used")
    assert resumed == "resumed at step 8"
    assert run.outcome() == undisturbed


def test_without_a_whole_generation_the_run_begins_again(training, undisturbed):
    run = training(evaluate=evaluate)
    interrupted(run, 9)
    for path in run.checkpoints.glob("*.state.safetensors"):
        path.write_bytes(b"")
    run.run()
    assert len(run.said) == 2
    assert [report.step for report in run.told[9:]] == [*range(1, STEPS + 1)]
    assert run.outcome() == undisturbed


def test_files_without_their_manifest_do_not_count(training, undisturbed):
    """A kill while a generation is written leaves weights without a manifest, and a temporary file."""
    run = training(evaluate=evaluate)
    interrupted(run, 6)
    (run.checkpoints / "000000007.weights.safetensors").write_bytes(b"half of")
    (run.checkpoints / ".000000007.state.safetensors.1234.tmp").write_bytes(b"a write")
    run.run()
    assert run.said == ["resumed at step 6"]
    assert run.outcome() == undisturbed
    assert not [*run.checkpoints.glob(".*")]


@pytest.mark.parametrize("left", [10, None])
def test_a_run_whose_metrics_were_lost_starts_over_and_says_so(left, training, undisturbed):
    run = training(evaluate=evaluate)
    interrupted(run, 7)
    metrics = run.folder / "metrics.jsonl"
    if left is None:
        metrics.unlink()
    else:
        metrics.write_bytes(metrics.read_bytes()[:left])
    run.run()
    assert len(run.said) == 1
    assert "has lost lines that step 7 had; the run starts over" in run.said[0]
    assert run.outcome() == undisturbed
