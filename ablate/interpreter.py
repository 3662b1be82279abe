"""Start Python without the current folder on its module path, so that a file in that folder is
never imported in place of a module.

Python puts the current folder first on the path for `python -m`, for `python -c`, and for an empty
entry of PYTHONPATH. A file `json.py` in a downloaded folder would then be executed. In Python
processes that this process starts, PYTHONSAFEPATH prevents it. Folders that PYTHONPATH names stay
on the path.

`ablate/__init__.py` imports this module first. It imports only modules that Python has loaded
before, which cannot come from the current folder.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The code that `python -c` executes before it imports anything. It loads the package from the same
# folder as this process, whatever is on the path of the new process.
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
    """The command of a new process that calls `main()` of a module of ablate, and exits with the
    value that `main()` returns.
    """
    return sys.executable, "-c", _START, os.path.join(ROOT, "ablate"), module


def leave_current_folder() -> None:
    """Remove the current folder from the module path of this process and of its children, if this
    process is the command line of ablate. Nothing changes in a process that only imports ablate,
    such as a notebook.
    """
    # While Python imports the packages of a module for `python -m`, sys.argv[0] is "-m".
    by_module = sys.argv[:1] == ["-m"] and _module().partition(".")[0] == "ablate"
    if not by_module and os.path.basename(sys.argv[0] if sys.argv else "") != "ablate":
        return
    if by_module and not sys.flags.safe_path:
        _remove(sys.path[0])
    _drop_empty_parts()
    os.environ["PYTHONSAFEPATH"] = "1"  # for every Python that this one starts


def _drop_empty_parts() -> None:
    """Undo the effect of empty entries of PYTHONPATH, which mean the current folder. The usual
    `PYTHONPATH=$PYTHONPATH:folder` makes one if the variable is unset.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    named = [entry for entry in entries if entry]
    if entries == [""] or len(named) == len(entries):  # an empty variable has no effect
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
    # orig_argv ends with the module (`-m MODULE` or `-mMODULE`) and its arguments.
    return sys.orig_argv[-len(sys.argv)].removeprefix("-m")


def _remove(folder: str) -> None:
    """Remove the first entry of the module path that is this folder. If the folder contains this
    package, it is moved to the end of the path instead.
    """
    sys.path.remove(folder)
    if os.path.abspath(folder) == ROOT and folder not in sys.path:  # ablate is not installed
        sys.path.append(folder)
