"""Settings of all tests."""

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

# Before torch is loaded, here and in the processes that tests start: small tensors gain nothing
# from a second thread, and threads that spin while they wait slow a busy machine down.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="passive")

from tests.forked import forked_workers  # noqa: F401

# No time limit for a single example: machines differ, and other work runs beside the tests. CI
# draws the same examples each time, so that a change fails for what it changed alone.
settings.register_profile("untimed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("untimed")

SLOW = ("end_to_end", "faults", "slurm")  # folders whose tests start processes that train


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of the files below, in the place of xdist's, the most tests first."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these folders as slow; single ones elsewhere have the mark themselves.

    Files with slow tests come first, so that no process is left alone with one of them at the end.
    """
    folders = [Path(__file__).parent / name for name in SLOW]
    for item in items:
        if any(folder in item.path.parents for folder in folders):
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


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
