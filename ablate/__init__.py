"""ablate: which part of the Transformer earns its keep?

Data flows one way: study -> rows -> runs -> (corpus -> batches -> model -> training -> decoding ->
scores) -> results on disk -> table. `docs/architecture.md` draws the floors.
"""

from ablate.report.results import load

__all__ = ["load"]
__version__ = "0.2.0.dev0"
