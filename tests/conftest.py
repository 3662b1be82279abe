"""Settings of all tests."""

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

# Before torch is loaded, here and in the processes that tests start: small tensors gain nothing
# from a second thread, and threads that spin while they wait slow a busy machine down.
os.environ.pop("ABLATE_RESULTS", None)  # tests have results of their own
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="passive")

from tests.forked import forked_workers  # noqa: F401

# No time limit for a single example: machines differ, and other work runs beside the tests. CI
# draws the same examples each time, so that a change fails for what it changed alone.
settings.register_profile("untimed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("untimed")

SLOW = ("end_to_end", "faults", "slurm")  # folders whose tests start processes that train
# Files and folders that `pytest` leaves out and `pytest -m extended` runs: faults at every step,
# clusters, random input, other libraries and browsers, devices, kernels, simulations.
EXTENDED = (
    "attention/test_figures.py",
    "checks/test_layers.py",
    "cli/test_cluster.py",
    "cli/test_fuzz.py",
    "cluster/test_ray.py",
    "data/test_hub.py",
    "end_to_end/test_interruptions.py",
    "end_to_end/test_plugins.py",
    "export",
    "faults",
    "gpu",
    "kernels",
    "launch/test_dummy_executor.py",
    "loggers",
    "model/test_pairs.py",
    "model/test_properties.py",
    "model/test_published.py",
    "model/test_size.py",
    "page/test_browser.py",
    "page/test_figures.py",
    "workers/test_ranks.py",
    "slurm",
    "stats/test_calibration.py",
    "store/test_filesystem.py",
    "study/test_hostile.py",
    "tasks/test_synthetic.py",
    "test_benchmarks.py",
    "training/test_parametrization.py",
    "training/test_ranks.py",
)
LONGEST = (  # files of 30 seconds and more, the longest first
    "slurm/test_slurm.py",
    "faults/test_faults.py",
    "model/test_properties.py",
    "end_to_end/test_interruptions.py",
    "test_benchmarks.py",
    "cli/test_fuzz.py",
    "page/test_figures.py",
    "test_docs.py",
    "decoding/test_beam.py",
)


@pytest.hookimpl(optionalhook=True)  # the mutation run goes without xdist
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: tests of Slurm, of leases and of kills often wait."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of the files below, in the place of xdist's, the most tests first."""
    config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before the selection by `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow and as extended by their folders and files; single ones elsewhere have
    the marks themselves.

    The longest files come first, then others with slow tests, so that no process is left alone with
    one of them at the end.
    """
    folders = {Path(__file__).parent / name for name in SLOW}
    paths = {item.path for item in items}
    in_slow_folders = {path for path in paths if folders & {*path.parents}}
    extended = {Path(__file__).parent / name for name in EXTENDED}
    for item in items:
        if item.path in in_slow_folders:
            item.add_marker(pytest.mark.slow)
        if extended & {item.path, *item.path.parents}:
            item.add_marker(pytest.mark.extended)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    rank = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST)}
    order = {path: (rank.get(path, len(rank)), path not in slow) for path in paths}
    items.sort(key=lambda item: order[item.path])


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Return a function that lets `make` fill a folder once for all processes of the tests."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def once(name, make):
        folder = root / name
        with FileLock(f"{folder}.lock"):
            if not (folder / "made").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                (folder / "made").touch()
        return folder

    return once
