"""The slots of a machine, and the micro-batches that fit into them."""

import sys
from types import SimpleNamespace

import pytest

from ablate.config.memory import CPU_MICRO_BATCH, peak_memory
from ablate.config.resolve import resolve_row
from ablate.errors import MachineError
from ablate.launch import devices
from ablate.launch.devices import (
    CPU_MEMORY_SHARE,
    CUDA_CONTEXT,
    GPU_MEMORY_SHARE,
    SMALLEST_MICRO_BATCH,
    local_slots,
    micro_batch,
    worker_environment,
)
from ablate.launch.executor import Demand, Slot
from ablate.store.machine import Resources

SMALL = resolve_row({"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32, "batch_tokens": 1000})
V = 200
GB = 10**9


def demand(device, jobs=None, runs=20, processes=1):
    return Demand((SMALL,), V, runs, Resources(device=device, jobs=jobs, processes=processes))


@pytest.fixture
def here(monkeypatch):
    """Set the cores, memory and GPUs of this machine, on which the user asks for no threads."""
    monkeypatch.delenv("OMP_NUM_THREADS")

    def here(cores=8, memory=16 * GB, gpus=()):
        monkeypatch.setattr(devices, "cores", lambda: cores)
        monkeypatch.setattr(devices, "memory", lambda: memory)
        monkeypatch.setattr(devices, "visible_gpus", lambda: len(gpus))
        monkeypatch.setattr(devices, "_gpu_memory", lambda: list(gpus))

    return here


@pytest.mark.parametrize(
    ("cores", "jobs", "runs", "count", "threads"),
    [
        (8, None, 20, 8, 1),  # one for each core
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
def test_cores_are_divided_among_slots(here, cores, jobs, runs, count, threads):
    here(cores)
    found = local_slots(demand("auto", jobs, runs))
    assert len(found) == count
    assert {(slot.devices, slot.threads) for slot in found} == {(("cpu",), threads)}
    assert [slot.name for slot in found] == [str(i) for i in range(count)]
    assert sum(slot.memory for slot in found) == pytest.approx(CPU_MEMORY_SHARE * 16 * GB)


def test_there_are_fewer_slots_if_memory_is_short(here):
    need = peak_memory(SMALL, V, SMALLEST_MICRO_BATCH)
    here(8, memory=2.5 * need / CPU_MEMORY_SHARE)
    assert len(local_slots(demand("cpu"))) == 2
    here(8, memory=0.1 * need)
    assert len(local_slots(demand("cpu"))) == 1


@pytest.mark.parametrize(
    ("asked", "threads"), [("3", 3), ("2,1", 2), ("1", 1), ("", 4), ("0", 4), ("many", 4)]
)
def test_threads_that_the_user_asks_for_are_kept(here, monkeypatch, asked, threads):
    here(cores=8, gpus=(80 * GB,))
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    for device in ("cpu", "cuda"):
        found = local_slots(demand(device, 2, 20))
        assert {slot.threads for slot in found} == {threads}


@pytest.mark.parametrize(
    ("gpus", "jobs", "found", "threads"),
    [
        (1, None, ["cuda:0"], 8),
        (2, None, ["cuda:0", "cuda:1"], 4),
        (2, 3, ["cuda:0", "cuda:1", "cuda:0"], 2),
        (2, 4, ["cuda:0", "cuda:1"] * 2, 2),
    ],
)
def test_gpus_take_precedence_and_are_divided_among_slots(here, gpus, jobs, found, threads):
    here(8, gpus=[80 * GB] * gpus)
    for device in ("auto", "cuda"):
        shared = local_slots(demand(device, jobs))
        assert [slot.devices[0] for slot in shared] == found
        assert len({slot.name for slot in shared}) == len(shared)
        assert {slot.threads for slot in shared} == {threads}
        fullest = max(found.count(name) for name in found)
        assert {slot.memory for slot in shared} == {
            GPU_MEMORY_SHARE * 80 * GB / fullest - CUDA_CONTEXT
        }


@pytest.mark.parametrize(
    ("gpus", "processes", "jobs", "runs", "expected"),
    [
        (4, 2, None, 20, [(0, 1), (2, 3)]),
        (4, 4, None, 20, [(0, 1, 2, 3)]),
        (5, 2, None, 20, [(0, 1), (2, 3)]),  # one is left over
        (4, 2, 1, 20, [(0, 1)]),
        (4, None, None, 20, [(0,), (1,), (2,), (3,)]),  # no GPU would be idle
        (4, None, None, 4, [(0,), (1,), (2,), (3,)]),
        (4, None, None, 3, [(0,), (1,), (2,), (3,)]),  # 1.3 GPUs for each run
        (4, None, None, 2, [(0, 1), (2, 3)]),
        (8, None, None, 1, [tuple(range(8))]),
        (7, None, None, 1, [(0, 1, 2, 3)]),
    ],
)
def test_gpus_are_handed_out_in_groups(here, gpus, processes, jobs, runs, expected):
    here(16, gpus=[80 * GB] * (gpus - 1) + [40 * GB])
    found = local_slots(demand("cuda", jobs, runs, processes))
    assert [slot.devices for slot in found] == [
        tuple(f"cuda:{gpu}" for gpu in group) for group in expected
    ]
    assert {slot.threads for slot in found} == {16 // sum(map(len, expected))}
    for slot, group in zip(
        found, expected, strict=True
    ):  # the smallest GPU of a group limits the micro-batch
        assert (
            slot.memory == GPU_MEMORY_SHARE * (40 if gpus - 1 in group else 80) * GB - CUDA_CONTEXT
        )


def test_groups_that_do_not_fit_are_refused(here):
    here(16, gpus=[80 * GB] * 2)
    with pytest.raises(MachineError, match="--gpus-per-run 4: there are 2 GPUs here"):
        local_slots(demand("cuda", processes=4))
    with pytest.raises(
        MachineError, match="--jobs 2 with --gpus-per-run 2 needs 4 GPUs, and there are 2 GPUs here"
    ):
        local_slots(demand("cuda", jobs=2, processes=2))


@pytest.mark.parametrize(
    ("processes", "jobs", "count", "threads"), [(2, None, 4, 1), (4, None, 2, 1), (2, 1, 1, 4)]
)
def test_processes_on_a_cpu_share_cores_and_memory(here, processes, jobs, count, threads):
    here(8)
    found = local_slots(demand("cpu", jobs, processes=processes))
    assert [slot.devices for slot in found] == [("cpu",) * processes] * count
    assert {slot.threads for slot in found} == {threads}
    assert sum(slot.memory * processes for slot in found) == pytest.approx(
        CPU_MEMORY_SHARE * 16 * GB
    )


def test_device_cpu_ignores_gpus(here):
    here(8, gpus=[80 * GB])
    assert {slot.kind for slot in local_slots(demand("cpu"))} == {"cpu"}


def test_device_cuda_without_a_gpu_is_refused(here):
    here()
    with pytest.raises(MachineError, match="use --device cpu"):
        local_slots(demand("cuda"))


def test_without_a_driver_torch_is_not_loaded(monkeypatch):
    monkeypatch.setattr(devices, "visible_gpus", lambda: 0)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it would be an error
    assert {slot.kind for slot in local_slots(demand("auto"))} == {"cpu"}


BIG = resolve_row({"preset": "base", "batch_tokens": 25_000})


def test_a_whole_batch_is_one_micro_batch_if_it_fits():
    assert micro_batch(SMALL, V, Slot("0", ("cuda:0",), 1, 80 * GB)) == 2 * SMALL.batch_tokens
    assert micro_batch(BIG, 37_000, Slot("0", ("cuda:0",), 1, 80 * GB)) == 50_000


def test_a_micro_batch_is_halved_until_it_fits():
    slot = Slot("0", ("cuda:0",), 1, 8 * GB)
    tokens = micro_batch(BIG, 37_000, slot)
    halves = [25_000, 12_500, 6250, 3125, 1563, 782, 391]
    assert tokens in halves[1:]
    assert (
        peak_memory(BIG, 37_000, tokens, "cuda")
        <= slot.memory
        < peak_memory(BIG, 37_000, 2 * tokens, "cuda")
    )


def test_a_gpu_without_bf16_gets_the_micro_batch_of_fp32(monkeypatch):
    in_fp32 = BIG.model_copy(update={"precision": "fp32"})
    needed = [peak_memory(config, 37_000, 50_000, "cuda") for config in (BIG, in_fp32)]
    assert needed[1] > 1.5 * needed[0]
    for has_bf16, fits in ((True, needed[0]), (False, needed[1])):
        for memory, expected in ((fits, 50_000), (fits - 1, 25_000)):
            assert (
                micro_batch(BIG, 37_000, Slot("0", ("cuda:0",), 1, memory, has_bf16=has_bf16))
                == expected
            )


@pytest.mark.parametrize(("major", "has_bf16"), [((7, 7), False), ((8, 7), False), ((8, 9), True)])
def test_slots_have_bf16_if_every_gpu_has_it(monkeypatch, major, has_bf16):
    found = [SimpleNamespace(major=number, total_memory=16 * GB) for number in major]
    monkeypatch.setattr(devices, "visible_gpus", lambda: len(found))
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(found))
    monkeypatch.setattr("torch.cuda.get_device_properties", found.__getitem__)
    assert [slot.has_bf16 for slot in local_slots(demand("auto"))] == [has_bf16] * 2


def test_a_cpu_gets_micro_batches_of_a_limited_size():
    assert micro_batch(BIG, 37_000, Slot("0", ("cpu",), 1, 1000 * GB)) <= CPU_MICRO_BATCH


def test_a_micro_batch_of_several_processes_leaves_room_for_the_sums_of_gradients():
    large = resolve_row({"preset": "big", "n_layers": 12})
    alone = peak_memory(large, 8000, 512, "cuda")
    together = peak_memory(large, 8000, 512, "cuda", processes=2)
    assert together > alone
    for group, fits in ((("cuda:0",), alone), (("cuda:0", "cuda:1"), together)):
        for memory, expected in ((fits, 512), (fits - 1, 256)):
            assert micro_batch(large, 8000, Slot("0", group, 1, memory), 512) == expected


def test_a_micro_batch_has_a_minimum():
    assert (
        SMALLEST_MICRO_BATCH // 2
        <= micro_batch(BIG, 37_000, Slot("0", ("cpu",), 1, 1.0))
        <= SMALLEST_MICRO_BATCH
    )


def test_a_worker_inherits_the_environment_and_gets_its_threads(monkeypatch):
    monkeypatch.setenv("SOMETHING", "of the user")
    environment = worker_environment(3)
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "3"
    assert environment["SOMETHING"] == "of the user"
    assert all(isinstance(value, str) for value in environment.values())


@pytest.mark.parametrize("largest", [26_000, 31_000])
def test_a_whole_batch_is_as_large_as_the_largest_that_the_corpus_has(largest):
    slot = Slot("0", ("cuda:0",), 1, 80 * GB)
    assert micro_batch(BIG, 37_000, slot, largest) == largest
    just_too_small = peak_memory(BIG, 37_000, largest, "cuda") - 1
    assert (
        micro_batch(BIG, 37_000, Slot("0", ("cuda:0",), 1, just_too_small), largest) == largest // 2
    )


@pytest.mark.parametrize(("visible", "given", "expected"), [
    (None, ["cuda:0"], "0"), (None, ["cuda:3"], "3"), ("4,7", ["cuda:1"], "7"), ("GPU-a, GPU-b", ["cuda:1"], "GPU-b"),
    (None, ["cpu"], None), ("4,7", ["cpu", "cpu"], "4,7"), (None, ["cuda:2", "cuda:3"], "2,3"),
    ("4,7,5", ["cuda:1", "cuda:2"], "7,5"),
])  # fmt: skip
def test_a_worker_sees_the_gpus_of_its_slot_only(monkeypatch, visible, given, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert worker_environment(1, given).get("CUDA_VISIBLE_DEVICES") == expected


@pytest.mark.parametrize(("theirs", "expected"), [
    (None, "glibc.malloc.hugetlb=1"),
    ("", "glibc.malloc.hugetlb=1"),
    # the last one counts
    ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0"),
])  # fmt: skip
def test_the_users_tunables_of_the_allocator_follow_ours(monkeypatch, theirs, expected):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if theirs is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", theirs)
    assert worker_environment(1)["GLIBC_TUNABLES"] == expected


def test_a_worker_with_a_gpu_compiles_in_one_process_and_into_the_users_cache(
    monkeypatch, tmp_path
):
    names = ("TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_CACHE_DIR")
    for name in names:
        monkeypatch.delenv(name, raising=False)

    def settings(*devices):
        environment = worker_environment(1, devices)
        return tuple(environment.get(name) for name in names)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert settings("cpu") == (None, None)
    assert settings("cuda:0", "cuda:1") == ("1", f"{tmp_path}/cache/ablate/compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    assert settings("cuda:0") == ("1", f"{tmp_path}/person/.cache/ablate/compiled")
    # A place that cannot be written would end every compilation.
    monkeypatch.setattr("ablate.launch.devices.os.access", lambda path, mode: False)
    assert settings("cuda:0") == ("1", None)
    for name in names:
        monkeypatch.setenv(name, "theirs")
    assert settings("cuda:0") == ("theirs", "theirs")
