"""Whether the disk has room is asked before anything is trained."""

from collections import namedtuple

import pytest
from ablate.launch.space import check_space

from ablate.config import cost, resolve_row
from ablate.errors import StoreError
from ablate.launch import space

V = 500
SMALL, LARGE = (resolve_row({"d_model": d, "average_checkpoints": 2}) for d in (64, 128))
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch):
    def free(n):
        monkeypatch.setattr(space.shutil, "disk_usage", lambda place: Usage(0, 0, n))

    return free


def needed(at_once):
    """2 runs of SMALL and 1 of LARGE: each leaves 2 sets of weights; at work, 3 checkpoints of 3 times the weights."""
    W = {c: 4 * cost.parameters(c, V) for c in (SMALL, LARGE)}
    working = sorted([9 * W[LARGE] - 2 * W[LARGE], 7 * W[SMALL], 7 * W[SMALL]], reverse=True)
    return 2 * (2 * W[SMALL] + W[LARGE]) + sum(working[:at_once])


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_one_byte_too_few_is_refused_with_both_numbers(tmp_path, free, at_once):
    configs = [SMALL, LARGE, SMALL]
    free(needed(at_once))
    check_space(tmp_path / "not" / "there", configs, V, at_once, there=0)
    free(needed(at_once) - 1)
    with pytest.raises(StoreError, match=r"the runs that are missing need .*B, and .*B are free; make room"):
        check_space(tmp_path, configs, V, at_once, there=0)


def test_what_these_runs_have_written_already_is_no_new_need(tmp_path, free):
    free(needed(1) - 1000)
    check_space(tmp_path, [SMALL, LARGE, SMALL], V, 1, there=1000)


def test_nothing_to_train_needs_nothing(tmp_path, free):
    free(0)
    check_space(tmp_path, [], V, 2, there=0)
