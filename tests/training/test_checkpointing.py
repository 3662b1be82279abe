"""An average of checkpoints is the mean of their weights."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ablate.config import resolve_row
from ablate.training.checkpointing import average, averaged_steps, count_due


def files(folder, *checkpoints):
    paths = [folder / f"{i}.safetensors" for i in range(len(checkpoints))]
    for path, weights in zip(paths, checkpoints, strict=True):
        save_file(weights, path)
    return paths


def test_every_weight_is_the_mean_over_the_files(tmp_path):
    paths = files(
        tmp_path,
        {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor(3.0)},
        {"a": torch.tensor([[5.0, 7.0]]), "b": torch.tensor(11.0)},
        {"a": torch.tensor([[13.0, 17.0]]), "b": torch.tensor(19.0)},
    )
    mean = average(paths)
    torch.testing.assert_close(mean, {"a": torch.tensor([[19 / 3, 26 / 3]]), "b": torch.tensor(11.0)})
    assert mean["a"].dtype == torch.float32


def test_the_average_of_one_file_is_that_file(tmp_path):
    (path,) = files(tmp_path, {"a": torch.randn(5, 7, generator=torch.Generator().manual_seed(1))})
    assert torch.equal(average([path])["a"], load_file(path)["a"])


def test_the_average_of_equal_files_is_each_of_them(tmp_path):
    weights = {"a": torch.randn(5, 7, generator=torch.Generator().manual_seed(1))}
    assert torch.equal(average(files(tmp_path, weights, weights, weights))["a"], weights["a"])


def test_large_weights_that_cancel_leave_the_small_one(tmp_path):
    paths = files(tmp_path, *({"a": torch.tensor([value])} for value in (1e9, 3.0, -1e9)))
    assert average(paths)["a"].tolist() == [1.0]  # in fp32, 1e9 + 3 is 1e9


@given(st.integers(1, 12), st.integers(1, 12), st.none() | st.integers(1, 9), st.integers(1, 60), st.integers(1, 9))
def test_the_window_is_the_last_of_all_that_were_due(every, evaluations, patience, step, count):
    config = resolve_row({"checkpoint_every": every, "eval_every": evaluations, "patience": patience})
    due = [at for at in range(1, step) if at % every == 0 or (patience and at % evaluations == 0)] + [step]
    assert averaged_steps(config, step, count) == due[-count:]
    assert len(due) == count_due(config, step)
