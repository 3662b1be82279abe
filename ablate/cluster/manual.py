"""Pilots that something else starts, such as a person or Kubernetes."""

from __future__ import annotations

from typing import ClassVar, Literal

from ablate.cluster.engine import Engine


class Manual(Engine):
    """Submits nothing. The last pilot that leaves prints the table."""

    engine: Literal["manual"] = "manual"
    submits_again: ClassVar[bool] = False
