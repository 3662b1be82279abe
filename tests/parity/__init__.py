"""Our models against independent implementations, with copied weights and random inputs.

The layers and stacks of torch.nn are in tests/model/test_parity.py, and the published models of
transformers in tests/model/test_published.py, test_copied_weights.py and tests/export.
"""

import os

os.environ["HF_HUB_OFFLINE"] = (
    "1"  # before transformers is first imported: models are built, none is fetched
)
