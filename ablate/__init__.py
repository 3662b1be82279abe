"""ablate: ablation studies of the Transformer, from a YAML file to a table of results.

Data flows in one direction: study -> rows -> runs -> jobs -> corpus -> batches -> model -> training
-> predictions -> scores -> results root -> table. `docs/architecture.md` describes the packages.
"""

from ablate.interpreter import leave_current_folder

leave_current_folder()  # before any other import, which could find a file in the current folder

from ablate.programs import run  # noqa: E402
from ablate.report.frames import judge, load  # noqa: E402

__all__ = ["judge", "load", "run"]
__version__ = "0.2.0.dev0"
