"""Several runs on a GPU: their number, by fake programs on PATH in place of NVIDIA's."""

import math
import stat

import pytest

from ablate.analysis.stages import next_stage
from ablate.config import resolve_row
from ablate.config.cost import Lengths
from ablate.config.gpu_time import GPUS, gpu_share
from ablate.config.memory import CUDA_CONTEXT, peak_memory
from ablate.errors import UsageError
from ablate.launch import Resources, devices, gpu_sharing, launch
from ablate.launch.devices import GPU_MEMORY_SHARE
from ablate.launch.gpu_sharing import RunOnGPU, measured_memory, share_gpus
from ablate.store import Results, RunFolder, nvidia
from ablate.store.nvidia import FreeGPU, free_gpus, mps, mps_text
from ablate.study import Selection, read_study
from tests.launch.test_dummy_executor import Outcomes
from tests.records import a_progress, a_provenance, a_result, an_execution

GB = 10**9
XS = resolve_row({"n_layers": 2, "d_model": 128, "d_ff": 512, "n_heads": 4, "batch_tokens": 4096})
BASE = resolve_row({"preset": "base", "batch_tokens": 25_000})
LENGTHS = Lengths.of_length(25)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program on PATH, and nothing else of its folder; it writes its arguments and input into
    `asked`.
    """
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def program(name, output="", code=0):
        path = tmp_path / "bin" / name
        asked = tmp_path / f"{name}.asked"
        path.write_text(
            f"#!/bin/sh\necho \"$@\" >> {asked}\ncat >> {asked}\ncat <<'END'\n{output}\nEND\nexit "
            f"{code}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return asked

    return program


def test_free_memory_is_that_of_the_visible_gpus(program, monkeypatch):
    asked = program(
        "nvidia-smi", "NVIDIA H100 80GB HBM3, 81559, 80000\nNVIDIA H100 80GB HBM3, 81559, 512"
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-a")
    assert free_gpus() == [
        FreeGPU("NVIDIA H100 80GB HBM3", 81559 << 20, 80000 << 20),
        FreeGPU("NVIDIA H100 80GB HBM3", 81559 << 20, 512 << 20),
    ]
    assert asked.read_text().startswith("-i 4,GPU-a --query-gpu=")


@pytest.mark.parametrize(
    ("output", "code"), [("NVIDIA L4, 1, 1", 9), ("GB10, [N/A], [N/A]", 0), ("no devices", 0)]
)
def test_free_memory_that_is_not_reported_is_not_guessed(program, output, code):
    program("nvidia-smi", output, code)
    assert free_gpus() == []
    with pytest.raises(
        UsageError, match="nvidia-smi does not say how much memory is free; give a number"
    ):
        share_gpus(free_gpus(), [RunOnGPU(XS, 8000, 4096)], 5, LENGTHS)


@pytest.mark.parametrize(("code", "state"), [(0, "running"), (1, "installed"), (None, None)])
def test_the_daemon_of_mps_is_asked_and_never_started(program, code, state):
    asked = None if code is None else program(nvidia.MPS_CONTROL, "", code)
    assert mps() == state
    assert {"running": "MPS is running", "installed": "MPS is not running", None: "not installed"}[
        state
    ] in mps_text()
    if asked is not None:  # twice: without arguments, such as -d, which would start it
        assert asked.read_text() == "\nget_server_list\n" * 2


def shared(gpus, runs, total=100, cores=64, monkeypatch=None):
    monkeypatch.setattr(gpu_sharing, "cores", lambda: cores)
    found = share_gpus(gpus, runs, total, LENGTHS)
    return found.jobs, found.reason


@pytest.mark.parametrize(
    ("name", "precision"), [("Tesla V100-SXM2-32GB", "fp32"), ("NVIDIA H100 80GB HBM3", "bf16")]
)
def test_runs_on_a_gpu_without_bf16_need_the_memory_of_fp32(program, monkeypatch, name, precision):
    computed = BASE.model_copy(update={"precision": precision})
    free = (
        math.ceil(
            10 * (peak_memory(computed, 37_000, 30_000, "cuda") + CUDA_CONTEXT) / GPU_MEMORY_SHARE
        )
        + 9
    )
    _, reason = shared(
        [FreeGPU(name, free, free)], [RunOnGPU(BASE, 37_000, 30_000)], monkeypatch=monkeypatch
    )
    assert ": 10 fit into" in reason


def test_as_many_runs_share_a_gpu_as_fit_into_the_free_memory(program, monkeypatch):
    run = RunOnGPU(BASE, 37_000, 30_000)
    need = peak_memory(BASE, 37_000, 30_000, "cuda") + CUDA_CONTEXT
    assert run.memory == need
    for free, expected in ((3 * need + 9, 3), (3 * need - 9, 2), (need // 2, 1)):
        gpu = FreeGPU("Unknown GPU", 10**12, int(free / GPU_MEMORY_SHARE))
        jobs, reason = shared([gpu], [run, RunOnGPU(XS, 8000, 4096)], monkeypatch=monkeypatch)
        assert jobs == expected
        assert "(estimated)" in reason
        assert "MPS" in reason
        assert "occupy" not in reason  # the speed of the product is not known
    full = FreeGPU("Unknown GPU", 10**12, int(1.01 * need / GPU_MEMORY_SHARE))
    assert (
        shared([gpu, full], [run], monkeypatch=monkeypatch)[0] == 2
    )  # one on each: the fullest decides


def test_the_measured_memory_counts_where_a_run_has_finished(program, monkeypatch):
    gpu = FreeGPU("Unknown GPU", 80 * GB, 80 * GB)
    run = RunOnGPU(BASE, 37_000, 30_000, measured=4 * GB)
    jobs, reason = shared([gpu], [run], monkeypatch=monkeypatch)
    assert jobs == int(GPU_MEMORY_SHARE * 80 * GB / (4 * GB + CUDA_CONTEXT)) == 12
    assert "(measured)" in reason
    smaller = resolve_row({"preset": "base", "batch_tokens": 25_000, "micro_batch_tokens": 2000})
    assert (
        RunOnGPU(smaller, 37_000, 30_000).memory
        == peak_memory(smaller, 37_000, 2000, "cuda") + CUDA_CONTEXT
    )


@pytest.mark.parametrize(("total", "cores", "expected", "said"), [
    (100, 6, 6, "there are 3 cores for each GPU"), (3, 64, 4, "3 runs in all"), (100, 1, 2, "cores for each GPU"),
])  # fmt: skip
def test_no_more_runs_share_a_gpu_than_there_are_runs_or_cores(
    program, monkeypatch, total, cores, expected, said
):
    gpus = [FreeGPU("Unknown GPU", 80 * GB, 80 * GB)] * 2
    jobs, reason = shared(gpus, [RunOnGPU(XS, 8000, 4096)], total, cores, monkeypatch)
    assert jobs == expected
    assert said in reason


def test_no_more_runs_share_a_known_gpu_than_occupy_it(program, monkeypatch):
    """A step of base keeps an L4 busy all the time; one of XS leaves most of an H100 idle."""
    l4, h100 = (
        FreeGPU(f"NVIDIA {name}", 1000 * GB, 1000 * GB) for name in ("L4", "H100 80GB HBM3")
    )
    base, small = RunOnGPU(BASE, 37_000, 30_000), RunOnGPU(XS, 8000, 4096)
    assert gpu_share(BASE, 37_000, LENGTHS, GPUS["l4"]) == 1.0
    assert shared([l4], [base], monkeypatch=monkeypatch)[0] == 1
    share = gpu_share(XS, 8000, LENGTHS, GPUS["h100"])
    jobs, reason = shared([h100], [small], monkeypatch=monkeypatch)
    assert (jobs - 1) * share < 1 <= jobs * share
    assert f"{jobs} occupy it (estimated" in reason
    assert (
        shared([h100], [small, base], monkeypatch=monkeypatch)[0] < jobs
    )  # the slowest run decides


@pytest.mark.parametrize(
    ("name", "known"),
    [("NVIDIA A100-SXM4-80GB", "a100"), ("Tesla V100-SXM2-32GB", "v100"), ("NVIDIA H100 80GB HBM3", "h100"),
     ("NVIDIA L40S", None), ("NVIDIA RTX A1000 Laptop GPU", None), ("NVIDIA GH200 480GB", None)],
)  # fmt: skip
def test_a_product_is_known_by_its_whole_name(program, monkeypatch, name, known):
    """The share of time limits the runs on a known GPU only; an L40 is no L4."""
    reason = shared(
        [FreeGPU(name, 1000 * GB, 1000 * GB)], [RunOnGPU(XS, 8000, 4096)], monkeypatch=monkeypatch
    )[1]
    share = gpu_share(XS, 8000, LENGTHS, GPUS[known]) if known else None
    assert f"{math.ceil(1 / share)} occupy it" in reason if share else "occupy" not in reason


@pytest.mark.parametrize(
    ("name", "finished", "execution", "expected"),
    [
        ("L4", True, {}, 5 * GB),
        ("T4", True, {}, None),
        ("L4", False, {}, None),
        (
            "L4",
            True,
            {"micro_batch_tokens": 4095},
            None,
        ),  # beside other runs, or on a GPU with less free memory
        ("L4", True, {"parts": 2}, None),  # of which each GPU computes one
        ("L4", True, {"halvings": 1}, 5 * GB),  # the peak is that of the try before
    ],
)
def test_only_a_finished_run_on_such_a_gpu_with_whole_batches_is_a_measurement(
    tmp_path, name, finished, execution, expected
):
    folder = RunFolder(tmp_path)
    assert measured_memory(folder, {"L4"}, 4096) is None
    a_provenance(device=name).write(folder.provenance)
    a_progress(phase="left", device="cuda:0", peak_memory=5 * GB).write(folder.progress)
    assert measured_memory(folder, {"L4"}, 4096) is None
    an_execution(**{"device": "cuda", "micro_batch_tokens": 4096, **execution}).write(
        folder.execution
    )
    if finished:
        a_result().write(folder.result)
    assert measured_memory(folder, {"L4"}, 4096) == expected


STUDY = """\
study: shared
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 20, batch_tokens: 512}
seeds: [1, 2, 3]
rows: {A: {each: {h: [1]}}}
"""


class Enough(Exception):
    pass


def test_a_launch_shares_the_gpus_and_says_why(program, tmp_path, monkeypatch):
    program("nvidia-smi", "Unknown GPU, 80000, 40000")
    monkeypatch.setattr(gpu_sharing, "cores", lambda: 4)
    monkeypatch.setattr(devices, "_has_driver", lambda: True)
    (tmp_path / "study.yaml").write_text(STUDY)
    study, results = read_study(tmp_path / "study.yaml", Selection()), Results(tmp_path / "results")
    asked, said = [], []
    observer = Outcomes()
    observer.log = said.append

    def executor_for(demand):
        asked.append(demand.jobs)
        raise Enough

    for gpus in ([80 * GB], []):
        monkeypatch.setattr(devices, "_gpu_memory", lambda gpus=gpus: gpus)
        with pytest.raises(Enough):
            launch(
                next_stage(study, results),
                results,
                observer,
                Resources(jobs="auto"),
                executor_for=executor_for,
            )
    assert asked == [4, None]  # by cores; without a GPU, the executor's default
    (reason,) = [line for line in said if line.startswith("--jobs auto: ")]
    assert "4 runs at once on each GPU" in reason
    assert "70% of the 41.9 GB that are free" in reason
