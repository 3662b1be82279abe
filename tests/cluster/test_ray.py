"""A study on a local Ray gives the bytes of a local launch; its driver stops, and its death loses
nothing.
"""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.cluster import ray_cluster
from ablate.cluster.engine import least_memory
from ablate.cluster.profiles import find_profile
from ablate.cluster.ray_cluster import Ray, TaskResources
from ablate.cluster.submission import freeze
from ablate.errors import UsageError
from ablate.launch.devices import local_slots, micro_batch
from ablate.launch.executor import Demand
from ablate.store import Results, none_if_unreadable
from ablate.store.jobs import JobFolder, jobs_of
from ablate.store.machine import Resources
from ablate.study import Selection, read_study, runs_of
from tests.cli.inside import inside
from tests.launch.test_dummy_executor import STUDY, Outcomes, files, launched

PROFILES = """\
lab: {engine: ray, address: local, workers: 2, each: {cpus: 1}}
cluster: {engine: ray, address: "127.0.0.1:1", each: {gpus: 1, cpus: 8, memory: 32G}}
"""
INSTALL = "pip install ray"
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason=f"Ray is not installed ({INSTALL})")


HEAD = """
import sys, ray
ray.init(address="local", num_cpus=2, object_store_memory=80_000_000, log_to_driver=False, logging_level="error")
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster():
    """A running Ray with two cores; its address."""
    command, environment = [sys.executable, "-c", HEAD], {**os.environ, "RAY_AUTH_MODE": "disabled"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as head:
        yield head.stdout.readline().strip()
        head.stdin.close()
        head.wait(timeout=60)


@pytest.fixture
def on_cluster(here, cluster):
    """The folder, whose profile `lab` is the running cluster."""
    (here / "clusters.yaml").write_text(PROFILES.replace("address: local", f'address: "{cluster}"'))
    return here


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a study and profiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_CLUSTERS", str(tmp_path / "clusters.yaml"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "clusters.yaml").write_text(PROFILES)
    (tmp_path / "dummy.yaml").write_text(STUDY.replace("seeds: [1, 2]", "seeds: [1]"))
    return tmp_path


def wait(condition, seconds=300):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value


def end_of(pid):
    """Wait for a driver, which is a child of this process."""
    wait(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    os.waitpid(pid, 0)


@pytest.mark.ray
@needs_ray
def test_a_study_on_ray_gives_the_bytes_of_a_local_launch(on_cluster):
    here = on_cluster
    done = inside("run", "dummy.yaml", "--on", "lab", "--results", "ray", "--detach")
    assert done.code == 0, done.err
    (job,) = jobs_of(Results(here / "ray"), "dummy")
    (driver,) = job.read_submissions()[0].ids
    assert (
        f"2 pilots on lab, driver {driver} on this host prints the table at the end"
        in done.out.replace("\n", " ")
    )
    assert os.getsid(int(driver)) == int(driver)  # the end of this shell is not its end
    wait(lambda: job.is_closed)
    end_of(int(driver))
    assert job.read_end().reason == "nothing is left to do"
    # The first pilot that sees nothing left takes the other one along.
    assert "pilot 0: left" in (job.logs / "driver.log").read_text()
    assert "asked to stop" not in (job.logs / "driver.log").read_text()
    ray, local = Results(here / "ray"), Results(here / "local")
    study = read_study(here / "dummy.yaml")
    assert {ray.run(run.id).read_execution().threads for run in runs_of(study)} == {
        1
    }  # the cores of a pilot
    assert set(launched(study, local, Outcomes(), Resources(device="cpu", jobs=2))) == {"done"}
    for pattern in ("metrics.jsonl", "translations/*.txt", "checkpoints/*.weights.safetensors"):
        assert files(ray, pattern) == files(local, pattern)
        assert len(files(ray, pattern)) >= 2


@pytest.mark.ray
@needs_ray
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_job_that_is_stopped_or_loses_its_driver_saves_its_runs(on_cluster, how):
    """The pilots of a killed driver notice the end of their standard input."""
    here = on_cluster
    path = here / "dummy.yaml"
    path.write_text(
        STUDY.replace("train_steps: 20", "train_steps: 100000").replace("[1, 2]", "[1]")
    )
    study, results = read_study(path, Selection(rows=("base",))), Results(here / "results")
    assert inside("run", "dummy.yaml", "--on", "lab", "--rows", "base", "--detach").code == 0
    (job,) = jobs_of(results, "dummy")
    driver = int(job.read_submissions()[0].ids[0])
    (id,) = (run.id for run in runs_of(study))
    wait(
        lambda: (
            (report := none_if_unreadable(results.run(id).read_progress)) is not None
            and (report.step or 0) > 5
        )
    )
    if how == "stop":
        assert "asked to save and leave" in inside("cluster", "stop", "dummy.yaml", "--now").out
    else:
        os.kill(driver, signal.SIGKILL)
    wait(lambda: not results.run(id).lease.exists())
    end_of(driver)
    wait(lambda: not any(report.is_alive for report in job.read_pilots()))
    assert job.is_closed == (how == "stop")
    assert list(results.run(id).checkpoints.glob("*.json"))
    assert not results.run(id).failure.exists()


@pytest.mark.ray
@needs_ray
def test_a_job_whose_driver_has_died_is_closed_by_the_second_job_that_finishes_the_study(
    on_cluster,
):
    here = on_cluster
    results = Results(here / "results")
    assert inside("run", "dummy.yaml", "--on", "lab", "--detach").code == 0
    (orphan,) = jobs_of(results, "dummy")
    wait(orphan.read_pilots)
    driver = int(orphan.read_submissions()[0].ids[0])
    os.kill(driver, signal.SIGKILL)
    end_of(driver)
    wait(lambda: not any(report.is_alive for report in orphan.read_pilots()))
    assert not orphan.is_closed
    done = inside("run", "dummy.yaml", "--on", "lab")
    assert done.code == 0, done.err
    _, second = jobs_of(results, "dummy")
    end_of(int(second.read_submissions()[0].ids[0]))
    for job in (orphan, second):
        assert job.read_end().reason == "nothing is left to do"


@needs_ray
def test_an_address_without_a_cluster_is_reported_and_the_job_is_closed(here):
    done = inside("run", "dummy.yaml", "--on", "cluster", "--device", "cpu", "--detach")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert done.err.startswith("Ray: no cluster at address 127.0.0.1:1 (")
    (job,) = jobs_of(Results(here / "results"), "dummy")
    assert job.read_end().reason.startswith("not submitted: Ray: no cluster")


def test_without_ray_one_line_says_how_to_install_it(here, monkeypatch):
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    for command in ("plan", "run"):
        done = inside(command, "dummy.yaml", "--on", "ray")
        assert done.refusal == "Ray is not installed: pip install ray"


def test_a_profile_of_ray_has_resources(here):
    profile = find_profile("cluster")
    assert (profile.each.gpus, profile.each.cpus, profile.each.memory_bytes) == (1, 8, 32 * 1024**3)
    assert find_profile("ray") == Ray()
    with pytest.raises(UsageError, match="does not start pilots by Slurm"):
        find_profile("lab", options={"time": "4h"})


def test_the_memory_of_a_pilot_follows_from_the_largest_run(here, monkeypatch):
    """With it, the runs get the micro-batches that they get on a machine with enough memory."""
    study = read_study(here / "dummy.yaml")
    single, four = (
        Ray(each={"cpus": n}).resolved(runs_of(study)).each.memory_bytes for n in (1, 4)
    )
    assert four == pytest.approx(4 * single, rel=0.01)
    assert Ray(each={"gpus": 1}).resolved(runs_of(study)).each.memory is None
    monkeypatch.setattr(ray_cluster, "require_ray", lambda: None)
    with pytest.raises(UsageError, match=r"^each: memory: 1M is less than .*; give \d+M or more"):
        Ray(each={"memory": "1M"}).check(runs_of(study))
    monkeypatch.setenv("ABLATE_CPUS", "1")
    big = read_study(here / "dummy.yaml", Selection(("d_model=128", "batch_tokens=4000")))
    configs = tuple(row.config for row in big.rows)
    found = {}
    for name, bytes_of_pilot in (
        ("pilot", Ray().resolved(runs_of(big)).each.memory_bytes),
        ("large", 10**13),
    ):
        monkeypatch.setenv("ABLATE_MEMORY", str(bytes_of_pilot))
        (slot,) = local_slots(Demand(configs, 200, 8, Resources(device="cpu")))
        found[name] = [micro_batch(config, 200, slot) for config in configs]
    assert found["pilot"] == found["large"] == [8000] * len(configs)


def test_the_memory_of_a_pilot_covers_the_tuning_runs(here):
    """The largest candidate needs more than base, and any may be chosen."""
    text = (here / "dummy.yaml").read_text()
    (here / "tuned.yaml").write_text(
        f"{text}\ntune: {{grid: {{batch_tokens: [1000, 4000]}}, seeds: [101]}}\n"
    )
    tuned = read_study(here / "tuned.yaml")
    largest = read_study(here / "dummy.yaml", Selection(("batch_tokens=4000",)))
    assert least_memory(with_tuning_runs(runs_of(tuned))) == least_memory(runs_of(largest))


NODES = [{"CPU": 16.0, "memory": 64e9}, {"CPU": 8.0, "GPU": 2.0, "memory": 32e9}]


@pytest.mark.parametrize(
    ("each", "fits"),
    [
        ({"cpus": 16}, True),
        ({"cpus": 8, "gpus": 2, "memory": "30000M"}, True),
        ({"cpus": 17}, False),
        ({"cpus": 9, "gpus": 1}, False),  # each of them fits a node, but no node has both
        ({"cpus": 1, "gpus": 3}, False),
        ({"cpus": 1, "memory": "65G"}, False),
    ],
)
def test_a_pilot_must_fit_a_node(each, fits):
    profile = Ray(address="a:1", each=each)
    if fits:
        ray_cluster.refuse_too_large(profile, NODES)
        return
    with pytest.raises(UsageError) as error:
        ray_cluster.refuse_too_large(profile, NODES)
    asked, largest = str(error.value).split(" for a pilot; the largest has ")
    assert asked.startswith(f"Ray: no node at a:1 has {each['cpus']} core")
    assert largest == "8 cores, 2 GPUs, 32.0 GB of memory; for an autoscaler, set node_wait"
    assert "\n" not in asked


class FakeRay:
    """A Ray whose second node starts at the given look, and whose tasks end once it is there."""

    def __init__(self, start):
        self.start, self.looks, self.is_shut = start, 0, False

    def nodes(self):
        self.looks += 1
        resources = NODES if self.looks >= self.start else [{"CPU": 0.0}]
        return [{"Alive": True, "Resources": each} for each in resources]

    def wait(self, tasks, num_returns, timeout):
        return (tasks if self.looks >= self.start else []), []

    def get(self, task):
        return 0

    def shutdown(self):
        self.is_shut = True


@pytest.mark.parametrize(
    ("wait", "start", "end"), [(60, 5, "left"), (60, 1, "left"), (1, 10**9, "closed"), (0, 2, "")]
)
def test_an_autoscaler_has_node_wait_seconds_to_start_a_node(here, monkeypatch, wait, start, end):
    """A clock that goes on by a tenth of a second at each look stands for the waiting."""
    profile = find_profile("lab").model_copy(
        update={"node_wait": wait, "each": TaskResources(gpus=1)}
    )
    study, results = read_study(here / "dummy.yaml"), Results(here / "results")
    profile = profile.resolved(runs_of(study))
    folder = freeze(study, results, Selection(), "lab", profile, Resources())
    ray, lines, clock = FakeRay(start), [], itertools.count()
    submitted = []
    monkeypatch.setattr(ray_cluster, "_connect", lambda address: ray)
    monkeypatch.setattr(ray_cluster, "_submit", lambda *_: submitted.append(True) or {"task": 0})
    monkeypatch.setattr(ray_cluster, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10))
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    if end == "left":
        assert profile.drive(folder, "python", 1, lines.append)
        assert lines[-1] == "pilot 0: left"
        assert ray.looks == start
    else:
        with pytest.raises(UsageError, match="no node at local has 1 core, 1 GPU"):
            profile.drive(folder, "python", 1, lines.append)
        assert (bool(submitted), folder.is_closed) == (bool(wait), bool(wait))
        assert ray.looks == (1 if not wait else 10)
        assert not wait or folder.read_end().reason.endswith("; waited 1 s")
    assert ray.is_shut


@pytest.mark.ray
@needs_ray
def test_a_submission_that_fits_no_node_is_refused(on_cluster):
    here = on_cluster
    (here / "clusters.yaml").write_text(
        (here / "clusters.yaml").read_text().replace("{cpus: 1}", "{cpus: 3}")
    )
    done = inside("run", "dummy.yaml", "--on", "lab", "--detach")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert re.search(
        r"^Ray: no node at .* has 3 cores, 0 GPUs, .* for a pilot; the largest has 2 cores, 0 GPUs",
        done.err,
    )
    (job,) = jobs_of(Results(here / "results"), "dummy")
    assert job.read_end().reason.startswith("not submitted: Ray: no node at")


@pytest.mark.parametrize(
    ("lines", "is_connected"),
    [("connected", True), ("a banner\\n\\nconnected", True), ("connected?", False), ("", False)],
)
def test_a_driver_may_print_lines_before_it_is_connected(
    tmp_path, monkeypatch, lines, is_connected
):
    monkeypatch.setattr(ray_cluster, "require_ray", lambda: None)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nprintf '{lines}\\n'\necho the reason >&2\n")
    program.chmod(0o755)
    folder = JobFolder(tmp_path)
    folder.logs.mkdir()
    if is_connected:
        end_of(int(ray_cluster.start_driver(folder, str(program), 1)))
        return
    with pytest.raises(UsageError, match="the reason"):
        ray_cluster.start_driver(folder, str(program), 1)
