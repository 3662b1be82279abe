"""The kinds of clusters by name. The class of an engine is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.lazy import Imports

if TYPE_CHECKING:
    from ablate.cluster.engine import Engine

ENGINES: Imports[type[Engine]] = Imports(
    {
        "slurm": "ablate.cluster.slurm:Slurm",
        "ray": "ablate.cluster.ray_cluster:Ray",
        "manual": "ablate.cluster.manual:Manual",
    }
)
