"""Kernels on the same products everywhere; tests/kernels/test_cpu_matmul.py has those of single processors."""

from tests.model.conftest import one_thread, torchs_products_in_fp32  # noqa: F401
