"""Small models whose sizes are distinct primes, so that any transposition breaks."""

import pytest
import torch

from ablate.kernels import cpu_matmul


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tensors of a few hundred numbers gain nothing from a second core."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def torchs_products_in_fp32():
    """Use torch's products in fp32 on every processor, so that results and FLOP counts are the same on all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_matmul, "_fp32_on_cpu", cpu_matmul.Matmul)
        yield
