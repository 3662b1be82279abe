"""A run that is interrupted, killed or damaged, and then resumed, writes the bytes of an
undisturbed one.
"""

import pytest
import torch
from safetensors.torch import load_file

from ablate.errors import Interrupted
from ablate.store import checkpoints
from ablate.training import trainer as trainer_module
from tests.training.conftest import LOG_EVERY, Training

STEPS = 12


def evaluate(model):
    """A dev perplexity that depends on the weights, and puts the model into evaluation mode as a
    real one does.
    """
    model.eval()
    with torch.no_grad():
        return 100.0 + float(model(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]]))[0, 0, 0])


def interrupted(run, step):
    run.stop_after = (step,)
    with pytest.raises(Interrupted):
        run.fit()
    run.stop_after = ()


@pytest.fixture(scope="module")
def undisturbed_run(tmp_path_factory, toy):
    """A run without any disturbance."""
    run = Training(tmp_path_factory.mktemp("undisturbed"), toy, evaluate=evaluate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "LOG_EVERY", LOG_EVERY)
        run.fit()
    return run


@pytest.fixture(scope="module")
def undisturbed(undisturbed_run):
    """Its outcome."""
    return undisturbed_run.outcome()


def test_a_run_interrupted_at_every_step_ends_like_an_undisturbed_one_with_its_reports(
    training, undisturbed_run
):
    run = training(evaluate=evaluate)
    for step in range(1, STEPS):
        interrupted(run, step)
    run.fit()
    assert run.outcome() == undisturbed_run.outcome()
    assert {report.perplexity for report in undisturbed_run.reports} != {None}
    assert run.reports == undisturbed_run.reports


def test_a_stop_requested_after_the_last_step_has_no_effect(training, undisturbed):
    run = training(evaluate=evaluate, stop_after=(STEPS,))
    assert run.fit().last_step == STEPS
    assert run.outcome() == undisturbed


def test_a_run_killed_between_checkpoints_resumes_at_the_last_one(training, undisturbed):
    run = training(evaluate=evaluate)

    class Killed(BaseException):
        pass

    def kill(report):
        if report.step == 11:
            raise Killed

    run.after_step = kill
    with pytest.raises(Killed):
        run.fit()
    assert b'"step": 10' in run.metrics.read_bytes()
    run.after_step = lambda report: None
    run.fit()
    assert run.log_lines == ["resumed at step 8"]
    assert run.outcome() == undisturbed


ROOMY = {"max_positions": 200}  # for both sides in a row
VARIANTS = {
    "decoder-only": {"architecture": "decoder-only", **ROOMY},
    "learned in bf16": {"precision": "bf16", "positional_encoding": "learned"},
    "none": {"positional_encoding": "none"},
    "lstm": {"mixer": "lstm"},
    "gru": {"mixer": "gru"},
    "decoder-only lstm": {"architecture": "decoder-only", "mixer": "lstm", **ROOMY},
    "mamba2": {"architecture": "decoder-only", "mixer": "mamba2", **ROOMY},
    "gated deltanet": {"architecture": "decoder-only", "mixer": "gated_deltanet", **ROOMY},
    "relative": {"positional_encoding": "relative", "relative_clip": 3, "attention_dropout": 0.2},
    "t5": {"positional_encoding": "t5", "activation_dropout": 0.2, "n_kv_heads": 1},
    "adamw": {
        "optimizer": "adamw", "weight_decay": 0.1, "gradient_clipping": 0.3, "schedule": "cosine",
        "norm": "rmsnorm", "norm_position": "pre", "tied_embeddings": "none",
    },
    "averaged normuon": {
        "optimizer": "normuon", "weight_decay": 0.1, "ema_decay": 0.8, "cautious_decay": True, "cautious_updates": True,
        "decay_schedule": "cosine", "embedding_rate": 0.3,
    },
    "soap and rg_lru": {
        "optimizer": "soap", "preconditioning_frequency": 2, "weight_decay": 0.1, "mixer": "rg_lru",
        "architecture": "decoder-only", **ROOMY, "d_k": 4, "d_v": 4,
    },
    "rwkv": {
        "architecture": "decoder-only", "mixer": ["rwkv", "rwkv_channels"], "feed_forward": ["none", "network"],
        "n_layers": 2, **ROOMY,
    },
    "lion": {"optimizer": "lion", "weight_decay": 0.1, "vector_decay": 1.0},
    "growing batches": {"batch_growth": 4, "batch_growth_fraction": 0.8, "batch_tokens": 120},
    "completep": {
        "parametrization": "completep", "learning_rate": 0.01, "base_width": 7, "base_depth": 1, "optimizer": "lion",
        "weight_decay": 0.1,
    },
    "schedule-free": {"optimizer": "schedule_free", "schedule": "constant"},
    "linear": {"attention": "linear", "activation": "swiglu", "tied_embeddings": "decoder", "attention_bias": True},
    "rope": {"positional_encoding": "rope", "d_k": 6, "attention": "local", "attention_window": 2, "residual": False},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_resuming_is_exact_for_every_kind_of_variant(training, variant):
    settings = {**VARIANTS[variant], "evaluate": evaluate, "micro_batch_tokens": 29}
    whole, parts = training("whole", **settings), training("parts", **settings)
    whole.fit()
    interrupted(parts, 3)  # within the warm-up
    interrupted(parts, 9)
    parts.fit()
    assert parts.log_lines == ["resumed at step 3", "resumed at step 9"]
    assert parts.outcome() == whole.outcome()


SCRIPT = {2: 50.0, 4: 40.0, 6: 30.0, 8: 35.0, 10: 30.0}


@pytest.mark.parametrize("step", [5, 6, 7, 8, 9])
def test_early_stopping_is_resumed_too(training, step):
    """Also at step 6, the best one, whose checkpoint must still count as scheduled."""
    run = training(patience=2, eval_every=2, checkpoint_every=100, train_steps=STEPS)
    run.evaluate = lambda model: SCRIPT[run.reports[-1].step + 1]
    interrupted(run, step)
    trained = run.fit()
    assert (trained.last_step, trained.chosen_step) == (10, 6)
    assert [c.step for c in checkpoints.scheduled(run.checkpoints)] == [4, 6, 8, 10]


@pytest.mark.parametrize("part", ["weights", "state"])
def test_a_damaged_newest_checkpoint_is_logged_and_the_one_before_it_is_used(
    training, undisturbed, part
):
    run = training(evaluate=evaluate)
    interrupted(run, 9)
    newest, _ = checkpoints.newest(run.checkpoints)
    path = getattr(newest, part)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    run.fit()
    damage, resumed = run.log_lines
    assert damage.startswith(f"{path}: is damaged or missing")
    assert damage.endswith("the checkpoint before it is used")
    assert resumed == "resumed at step 8"
    assert run.outcome() == undisturbed


def test_without_a_valid_checkpoint_the_run_starts_over(training, undisturbed):
    run = training(evaluate=evaluate)
    interrupted(run, 9)
    for path in run.checkpoints.glob("*.state.safetensors"):
        path.write_bytes(b"")
    run.fit()
    assert len(run.log_lines) == 2
    assert [report.step for report in run.reports[9:]] == [*range(1, STEPS + 1)]
    assert run.outcome() == undisturbed


def test_only_a_process_with_the_lease_sets_a_damaged_checkpoint_aside(training):
    class Lost(Exception):
        pass

    def lost():
        raise Lost

    run = training(evaluate=evaluate)
    interrupted(run, 7)
    for file in run.checkpoints.glob("*.safetensors"):
        file.write_bytes(b"damaged")
    before = sorted(run.checkpoints.iterdir())
    run.check_lease = lost
    with pytest.raises(Lost):
        run.prepare().resume()
    assert sorted(run.checkpoints.iterdir()) == before


def test_a_finished_run_resumes_with_its_weights_while_its_state_is_there(training, undisturbed):
    run = training(evaluate=evaluate)
    run.fit()
    trainer = run.prepare()
    trainer.resume()
    assert run.log_lines == [f"resumed at step {STEPS}"]
    final = load_file(checkpoints.newest(run.checkpoints)[0].weights)
    assert all(
        torch.equal(value, final[name]) for name, value in trainer.model.state_dict().items()
    )


@pytest.mark.parametrize(("damaged", "line"), [
    (8, f"training had ended at step {STEPS}"),
    (STEPS, "(its SHA-256 is not the one written); the run starts over"),
])  # fmt: skip
def test_without_a_state_only_the_weights_of_the_last_step_decide_whether_training_had_ended(
    training, damaged, line
):
    run = training(evaluate=evaluate)
    run.fit()
    checkpoints.prune(run.checkpoints, {8, STEPS}, finished=True)
    (weights,) = run.checkpoints.glob(f"*{damaged}.weights.safetensors")
    weights.write_bytes(b"damaged")
    run.prepare().resume()
    assert len(run.log_lines) == 1
    assert run.log_lines[0].endswith(line)


def test_files_without_a_manifest_do_not_count(training, undisturbed):
    """A kill while a checkpoint is written leaves weights without a manifest, and a temporary
    file.
    """
    run = training(evaluate=evaluate)
    interrupted(run, 6)
    (run.checkpoints / "000000007.weights.safetensors").write_bytes(b"half of")
    (run.checkpoints / ".000000007.state.safetensors.1234.tmp").write_bytes(b"a write")
    run.fit()
    assert run.log_lines == ["resumed at step 6"]
    assert run.outcome() == undisturbed
    assert not [*run.checkpoints.glob(".*")]


@pytest.mark.parametrize("left", [10, None])
def test_a_run_whose_metrics_log_is_lost_starts_over(left, training, undisturbed):
    run = training(evaluate=evaluate)
    interrupted(run, 7)
    metrics = run.folder / "metrics.jsonl"
    if left is None:
        metrics.unlink()
    else:
        metrics.write_bytes(metrics.read_bytes()[:left])
    run.fit()
    assert len(run.log_lines) == 1
    assert "has lost lines that it had at step 7; the run starts over" in run.log_lines[0]
    assert run.outcome() == undisturbed
