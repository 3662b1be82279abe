"""What the processor under the tests can do."""

import pytest
import torch

# oneDNN refuses its fused bf16 layers on a processor without AVX-512, where the product never calls
# them.
needs_bf16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="this processor has no fused layers in bf16",
)
