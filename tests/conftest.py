"""Settings of all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before torch is loaded, here and in the processes that tests start: small tensors gain nothing
# from a second thread, and threads that spin while they wait slow a busy machine down.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="passive")

# No time limit for a single example: machines differ, and other work runs beside the tests. CI
# draws the same examples each time, so that a change fails for what it changed alone.
settings.register_profile("untimed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("untimed")

SLOW = ("end_to_end", "faults", "slurm")  # folders whose tests start processes that train


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these folders as slow; single ones elsewhere have the mark themselves."""
    folders = [Path(__file__).parent / name for name in SLOW]
    for item in items:
        if any(folder in item.path.parents for folder in folders):
            item.add_marker(pytest.mark.slow)
