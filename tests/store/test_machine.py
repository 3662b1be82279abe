"""The description of the machine in results."""

import os
import platform
import socket
from pathlib import Path

import pytest

from ablate.store import machine as module
from ablate.store.machine import cores, machine

TWO_CORES = (
    "processor\t: 0\nmodel name\t: Fast: CPU @ 2 GHz\nflags\t: fpu\n\nprocessor\t: 1\nmodel "
    "name\t: other\n"
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (TWO_CORES, "Fast: CPU @ 2 GHz"),
        ("Hardware\t: a board\n", "by platform"),
        (None, "by platform"),
    ],
)
def test_the_processor_is_the_first_model_name_of_cpuinfo(tmp_path, monkeypatch, content, expected):
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(module, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "by platform")
    assert machine().processor == expected


def test_the_system_is_its_name_and_architecture():
    assert machine().system == f"{os.uname().sysname} {os.uname().machine}"


def test_the_description_has_no_host_no_user_and_no_path():
    text = machine().model_dump_json()
    assert socket.gethostname() not in text.split('"')
    assert str(Path.home()) not in text


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")
def test_cores_are_those_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert (cores(), machine().cores) == (1, 1)
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)


@pytest.mark.parametrize(("count", "expected"), [(3, 3), (None, 1)])
def test_without_an_affinity_all_cores_count(monkeypatch, count, expected):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr(module, "PROCESS_CGROUPS", Path("missing"))
    for name in ("SLURM_CPUS_ON_NODE", "ABLATE_CPUS"):
        monkeypatch.delenv(name, raising=False)
    assert cores() == expected


@pytest.mark.parametrize(
    ("files", "visible", "count"),
    [
        ((), None, 0),
        (("nvidiactl", "nvidia-uvm"), None, 0),
        (("dxg",), None, 1),
        (("nvidia0", "nvidia1", "nvidiactl"), None, 2),
        (("nvidia0", "nvidia1"), "1", 1),
        (("nvidia0", "nvidia1"), "", 0),
        (
            ("nvidia0", "nvidia1"),
            "-1",
            0,
        ),  # the usual way to hide all: CUDA ends the list at a number that is none
        (("nvidia0", "nvidia1"), "1,-1,0", 1),
        (("nvidia0",), "0,1", 1),
    ],
)
def test_gpus_are_counted_without_torch(tmp_path, monkeypatch, files, visible, count):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(module, "DEVICE_FILES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert module.visible_gpus() == count


@pytest.mark.parametrize(
    ("answer", "memory"),
    [
        ("echo 81559; echo 24564", 24564 << 20),
        ("echo 81559; exit 14", 81559 << 20),  # a warning
        ("echo No devices were found; exit 6", None),
    ],
)
def test_the_smallest_gpu_by_nvidia_smi_has_the_memory(tmp_path, monkeypatch, answer, memory):
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert module.gpu_memory() is None
    program.write_text(f"#!/bin/sh\n[ $1 = -i ] && [ $2 = 0,1 ] && {answer}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert module.gpu_memory() == memory


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A machine with 64 cores, 512 GiB, lines of /proc/self/cgroup, and control groups as file ->
    content.
    """

    def host(lines, files, **variables):
        for name, content in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        (tmp_path / "self").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 70\n")
        monkeypatch.setattr(module, "CGROUPS", tmp_path / "groups")
        monkeypatch.setattr(module, "PROCESS_CGROUPS", tmp_path / "self")
        monkeypatch.setattr(module, "VMSTAT", tmp_path / "vmstat")
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
        pages = {"SC_PHYS_PAGES": 512 << 18, "SC_PAGE_SIZE": 4096}
        monkeypatch.setattr(os, "sysconf", pages.__getitem__)
        for name in ("SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return module.cores(), module.memory() / 2**30, module.count_oom_kills()

    return host


UNIFIED = ["0::/slurm/job_7/step_batch"]
LEGACY = ["4:memory:/docker/abc", "2:cpu,cpuacct:/docker/abc", "0::/"]


@pytest.mark.parametrize(
    ("lines", "files", "variables", "expected"),
    [
        ([], {}, {}, (64, 512, 70)),
        (UNIFIED, {}, {}, (64, 512, 70)),
        # The limit of the job is above the group of the process; the nearest group counts kills.
        (UNIFIED, {"slurm/job_7/memory.max": "8589934592\n", "slurm/job_7/step_batch/memory.max": "max\n",
                   "slurm/job_7/step_batch/memory.events": "oom 4\noom_kill 3\n",
                   "slurm/job_7/cpu.max": "350000 100000",
                   "memory.events": "oom_kill 99\n", "cpu.max": "max 100000"}, {}, (4, 8, 3)),
        # In a container, the path is the host's, and the limits are at the top.
        (UNIFIED, {"memory.max": "4294967296\n", "cpu.max": "200000 100000\n"}, {}, (2, 4, 70)),
        (LEGACY, {"memory/docker/abc/memory.limit_in_bytes": "2147483648\n",
                  "memory/memory.limit_in_bytes": "9223372036854771712\n",
                  "memory/docker/abc/memory.oom_control": "oom_kill_disable 0\noom_kill 5\n",
                  "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1\n",
                  "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
                  "cpu,cpuacct/cpu.cfs_quota_us": "150000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
         {}, (2, 2, 5)),
        # A group whose files cannot be read, or do not say, hides neither limits above it nor the
        # machine's count.
        (["0::/a"], {"a/memory.max/folder": "", "memory.max": "4294967296", "a/memory.events": "oom 1\n",
                     "memory.events": "oom_kill 99\n"}, {}, (64, 4, 70)),
        (["2:cpu:/a"], {"cpu/a/cpu.cfs_quota_us": "", "cpu/a/cpu.cfs_period_us": "100000",
                        "cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, {}, (3, 512, 70)),
        # A file counts in the hierarchy of its own controller only.
        (["2:cpu:/a"], {"cpu/a/memory.limit_in_bytes": "2147483648\n"}, {}, (64, 512, 70)),
        # a colon in the name of a group
        (["0::/a:b"], {"a:b/memory.max": "2147483648\n"}, {}, (64, 2, 70)),
        ([], {}, {"SLURM_CPUS_ON_NODE": "6", "SLURM_MEM_PER_NODE": "3072"}, (6, 3, 70)),
        ([], {}, {"SLURM_CPUS_ON_NODE": "6", "SLURM_MEM_PER_CPU": "1024"}, (6, 6, 70)),
        ([], {}, {"SLURM_CPUS_ON_NODE": "128", "SLURM_MEM_PER_NODE": "0"}, (64, 512, 70)),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_job_and_not_of_the_host(host, lines, files, variables, expected):
    assert host(lines, files, **variables) == expected


def test_a_system_without_counts_of_kills_reports_none(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "PROCESS_CGROUPS", tmp_path / "missing")
    monkeypatch.setattr(module, "VMSTAT", tmp_path / "missing")
    assert module.count_oom_kills() is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("flags\t: fpu avx512_bf16 sse\n", True), ("flags\t: amx_bf16\n", True), ("Features\t: fp bf16\n", True),
        ("flags\t: fpu avx512_bf16x\nflags\t: bf16\n", False), ("model name\t: bf16 avx512_bf16\n", False),
        (None, False),
    ],
)  # fmt: skip
def test_bf16_products_are_those_of_the_first_list_of_instructions(
    tmp_path, monkeypatch, content, expected
):
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(module, "CPU_INFO", tmp_path / "cpuinfo")
    assert module.processor_has_bf16.__wrapped__() is expected


@pytest.mark.parametrize("name", sorted(module.LIBRARY_SETTINGS))
def test_variables_of_libraries_are_set_unless_the_user_has_set_them(monkeypatch, name):
    monkeypatch.setattr(os, "environ", {name: "the user's"})
    module.set_default_environment()
    expected = {**module.LIBRARY_SETTINGS, name: "the user's"}
    if (
        name == "OMP_WAIT_POLICY"
    ):  # libgomp would follow a spin count of ours in place of the user's policy
        del expected["GOMP_SPINCOUNT"]
    assert os.environ == expected


def test_a_worker_has_the_variables_that_its_parent_set(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    module.set_default_environment()
    assert os.environ == module.LIBRARY_SETTINGS
    assert module.library_settings() == {}, "the environment that a worker inherits has them all"


@pytest.mark.parametrize(
    ("lines", "files", "variables", "expected"),
    [
        (["0::/"], {"cpu.max": "100001 100000"}, {}, (2, 512)),  # rounded up
        (["0::/"], {"cpu.max": "1000 100000"}, {}, (1, 512)),
        (["0::/"], {"cpu.max": "100000 0"}, {}, (64, 512)),
        (["0::/"], {"cpu.max": "nonsense"}, {}, (64, 512)),
        (["3:cpu:/"], {"cpu/cpu.cfs_quota_us": "300000"}, {}, (64, 512)),  # without a period
        (["3:cpu:/"], {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "0"}, {}, (64, 512)),
        (["3:cpu:/"], {"cpu/cpu.cfs_quota_us": "0", "cpu/cpu.cfs_period_us": "100000"}, {}, (64, 512)),
        ([], {}, {"ABLATE_CPUS": "5", "ABLATE_MEMORY": str(7 << 30)}, (5, 7)),
        ([], {}, {"ABLATE_CPUS": "5", "SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_CPU": "512"}, (4, 2)),
        ([], {}, {"SLURM_MEM_PER_NODE": "2048", "SLURM_MEM_PER_CPU": "1"}, (64, 2)),
        ([], {}, {"ABLATE_CPUS": "many", "ABLATE_MEMORY": "-1"}, (64, 512)),
    ],
)  # fmt: skip
def test_of_several_limits_the_lowest_counts_and_nonsense_is_none(
    host, lines, files, variables, expected
):
    assert host(lines, files, **variables)[:2] == expected
