"""Our models against implementations that this project did not write, weights copied and inputs drawn.

`python -m tests.parity` prints the table.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is first imported: models are built, none is fetched
