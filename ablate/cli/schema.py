"""`ablate schema`: the JSON Schema of study files, for editors."""

from __future__ import annotations

from ablate.streams import print_data
from ablate.study.schema import schema_text

EXAMPLE = "ablate schema > ablate.schema.json"


def command() -> None:
    """Print the JSON Schema of study files, for completion in editors."""
    print_data(schema_text())
