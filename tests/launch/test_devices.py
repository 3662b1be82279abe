"""What a machine offers, and how it is shared out."""

import sys

import pytest

from ablate.config import resolve_row
from ablate.config.cost import peak_memory
from ablate.errors import UsageError
from ablate.launch import devices
from ablate.launch.devices import (
    CPU_MEMORY_SHARE,
    CPU_MICRO_BATCH,
    GPU_MEMORY_SHARE,
    SMALLEST_MICRO_BATCH,
    Place,
    micro_batch,
    places,
    worker_environment,
)

SMALL = resolve_row({"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32, "batch_tokens": 1000})
V = 200
GB = 10**9


@pytest.fixture
def here(monkeypatch):
    """This machine, with as many cores, bytes and GPUs as it is said to have."""

    def here(cores=8, memory=16 * GB, gpus=()):
        monkeypatch.setattr(devices, "cores", lambda: cores)
        monkeypatch.setattr(devices, "_memory", lambda: memory)
        monkeypatch.setattr(devices, "_has_driver", lambda: bool(gpus))
        monkeypatch.setattr(devices, "_gpu_memory", lambda: list(gpus))

    return here


@pytest.mark.parametrize(
    ("cores", "jobs", "runs", "count", "threads"),
    [
        (8, None, 20, 8, 1),  # a worker a core
        (8, None, 3, 3, 2),  # no more than there are runs
        (8, None, 1, 1, 8),
        (2, None, 20, 2, 1),
        (1, None, 20, 1, 1),
        (8, 2, 20, 2, 4),  # as asked
        (8, 1, 20, 1, 8),
        (2, 5, 20, 5, 1),
        (8, 4, 1, 4, 2),
    ],
)
def test_cores_are_shared_out(here, cores, jobs, runs, count, threads):
    here(cores)
    found = places("auto", jobs, [SMALL], V, runs)
    assert len(found) == count
    assert {(place.device, place.threads) for place in found} == {("cpu", threads)}
    assert sum(place.memory for place in found) == pytest.approx(CPU_MEMORY_SHARE * 16 * GB)


def test_fewer_work_at_once_where_memory_is_short(here):
    need = peak_memory(SMALL, V, SMALLEST_MICRO_BATCH)
    here(8, memory=2.5 * need / CPU_MEMORY_SHARE)
    assert len(places("cpu", None, [SMALL], V, 20)) == 2
    here(8, memory=0.1 * need)
    assert len(places("cpu", None, [SMALL], V, 20)) == 1


@pytest.mark.parametrize(
    ("gpus", "jobs", "found", "threads"),
    [
        (1, None, ["cuda:0"], 8),
        (2, None, ["cuda:0", "cuda:1"], 4),
        (2, 3, ["cuda:0", "cuda:1", "cuda:0"], 2),
        (2, 4, ["cuda:0", "cuda:1"] * 2, 2),
    ],
)
def test_gpus_come_first_and_are_shared_out(here, gpus, jobs, found, threads):
    here(8, gpus=[80 * GB] * gpus)
    for device in ("auto", "cuda"):
        shared = places(device, jobs, [SMALL], V, 20)
        assert [place.device for place in shared] == found
        assert {place.threads for place in shared} == {threads}
        fullest = max(found.count(name) for name in found)
        assert {place.memory for place in shared} == {GPU_MEMORY_SHARE * 80 * GB / fullest}


def test_a_cpu_that_is_asked_for_is_taken_whatever_else_there_is(here):
    here(8, gpus=[80 * GB])
    assert {place.device for place in places("cpu", None, [SMALL], V, 20)} == {"cpu"}


def test_a_gpu_that_is_asked_for_and_not_there_is_told(here):
    here()
    with pytest.raises(UsageError, match="use --device cpu"):
        places("cuda", None, [SMALL], V, 1)


def test_torch_is_not_asked_where_there_is_no_driver(monkeypatch):
    monkeypatch.setattr(devices, "_has_driver", lambda: False)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it would be an error
    assert {place.device for place in places("auto", None, [SMALL], V, 1)} == {"cpu"}


BIG = resolve_row({"preset": "base", "batch_tokens": 25_000})


def test_a_whole_batch_is_taken_at_once_where_it_fits():
    assert micro_batch(SMALL, V, Place("cuda:0", 1, 80 * GB)) == 2 * SMALL.batch_tokens
    assert micro_batch(BIG, 37_000, Place("cuda:0", 1, 80 * GB)) == 50_000


def test_a_micro_batch_is_the_largest_half_of_a_half_that_fits():
    place = Place("cuda:0", 1, 8 * GB)
    tokens = micro_batch(BIG, 37_000, place)
    halves = [25_000, 12_500, 6250, 3125, 1563, 782, 391]
    assert tokens in halves[1:]
    assert peak_memory(BIG, 37_000, tokens) <= place.memory < peak_memory(BIG, 37_000, 2 * tokens)


def test_a_cpu_takes_no_larger_part_than_helps():
    assert micro_batch(BIG, 37_000, Place("cpu", 1, 1000 * GB)) <= CPU_MICRO_BATCH


def test_a_micro_batch_has_an_end_where_nothing_fits():
    assert SMALLEST_MICRO_BATCH // 2 <= micro_batch(BIG, 37_000, Place("cpu", 1, 1.0)) <= SMALLEST_MICRO_BATCH


def test_a_worker_has_its_threads_and_what_its_launcher_has(monkeypatch):
    monkeypatch.setenv("SOMETHING", "of the user")
    environment = worker_environment(3)
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "3"
    assert environment["SOMETHING"] == "of the user"
    assert all(isinstance(value, str) for value in environment.values())


@pytest.mark.parametrize(("theirs", "expected"), [
    (None, "glibc.malloc.hugetlb=1"),
    ("", "glibc.malloc.hugetlb=1"),
    ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0"),  # the last one counts
])  # fmt: skip
def test_a_workers_allocator_asks_for_huge_pages_beside_what_the_user_asked_of_it(monkeypatch, theirs, expected):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if theirs is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", theirs)
    assert worker_environment(1)["GLIBC_TUNABLES"] == expected
