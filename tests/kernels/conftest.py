"""Kernels on one thread."""

from tests.model.conftest import one_thread  # noqa: F401
