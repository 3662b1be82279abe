"""ablate: ablation studies of the Transformer, from a YAML file to a table of results.

Data flows in one direction: study -> rows -> runs -> assignments -> corpus -> batches -> model ->
training -> predictions -> scores -> results root -> table. `docs/architecture.md` describes the
packages.
"""

from ablate.interpreter import leave_current_folder

leave_current_folder()  # before any other import, which could find a file in the current folder

from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from ablate.frames import judge, load
    from ablate.programs import run

__all__ = ["judge", "load", "run"]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Import a function when a program first asks for it: commands load this package, too."""
    from ablate.lazy import Imports

    functions = {"judge": "ablate.frames:judge", "load": "ablate.frames:load"}
    public = Imports[Any]({**functions, "run": "ablate.programs:run"})
    if name not in public:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return public[name]


def __dir__() -> list[str]:
    """The public functions, for completion in a notebook, though they are not imported yet."""
    return [*__all__, "__version__"]
