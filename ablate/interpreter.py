"""Start Python without the current folder on its path, so that a file there never takes the place
of a module.

Python puts the current folder first on the path of `python -m` and `python -c`, and for an empty
part of PYTHONPATH. A downloaded folder with a file `json.py` would then be executed. PYTHONSAFEPATH
prevents it in every Python that this one starts. A folder that PYTHONPATH names stays on the path.

`ablate/__init__.py` imports this module first, so it imports only what Python has loaded by then.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# -c executes this before it imports anything. The package is loaded from the folder of this
# process, wherever the path of the new process leads.
_START = """\
import sys
if not sys.flags.safe_path:
    del sys.path[0]
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
_, folder, module = sys.argv
spec = spec_from_file_location(
    "ablate", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["ablate"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["ablate"])
sys.exit(import_module(module).main())
"""


def python_command(module: str) -> tuple[str, ...]:
    """The command that calls `main()` of a module of ablate in a new process, and exits with what
    it returns.
    """
    return sys.executable, "-c", _START, os.path.join(ROOT, "ablate"), module


def leave_current_folder() -> None:
    """Take the current folder from the path of this process and of its children, if this is the
    command line.

    A process that only imports ablate, such as a notebook, is left alone.
    """
    by_module = (
        sys.argv[:1] == ["-m"] and _module().partition(".")[0] == "ablate"
    )  # `-m` while packages are imported
    if not by_module and os.path.basename(sys.argv[0] if sys.argv else "") != "ablate":
        return
    if by_module and not sys.flags.safe_path:
        _remove(sys.path[0])
    _drop_empty_parts()
    os.environ["PYTHONSAFEPATH"] = "1"  # for every Python that this one starts


def _drop_empty_parts() -> None:
    """Undo an empty part of PYTHONPATH, which means the current folder;
    `PYTHONPATH=$PYTHONPATH:folder` makes one.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    named = [entry for entry in entries if entry]
    if entries == [""] or len(named) == len(entries):  # an empty variable names no folder
        return
    if named:
        os.environ["PYTHONPATH"] = os.pathsep.join(named)
    else:
        del os.environ["PYTHONPATH"]
    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        return
    if here in sys.path and here not in map(os.path.abspath, named):
        _remove(here)


def _module() -> str:
    """The module after `-m` on the command line."""
    return sys.orig_argv[-len(sys.argv)].removeprefix(
        "-m"
    )  # orig_argv ends with the module and its arguments


def _remove(folder: str) -> None:
    """Remove the first entry of the path that is this folder; a folder with this package is moved
    to the end.
    """
    sys.path.remove(folder)
    if os.path.abspath(folder) == ROOT and folder not in sys.path:  # ablate is not installed
        sys.path.append(folder)
