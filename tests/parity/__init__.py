"""Our models against independent implementations, with copied weights and random inputs.

`python -m tests.parity` prints the table.
"""

import os

os.environ["HF_HUB_OFFLINE"] = (
    "1"  # before transformers is first imported: models are built, none is fetched
)
