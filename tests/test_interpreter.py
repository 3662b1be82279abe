"""No module is loaded from the current folder, in no process of the program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ablate
from ablate.interpreter import python_command
from ablate.launch.local import WORKER
from ablate.workers.assignment import READY
from tests.end_to_end.studies import TINY, write_study

SCRIPT = "import sys\nfrom ablate.cli import main\nsys.exit(main())\n"  # as installers write it
TRAPS = ("json", "random", "torch", "pathlib", "typing", "pickle", "socket", "tempfile", "multiprocessing", "yaml",
         "numpy", "contextlib", "dataclasses", "selectors", "__future__", "rich")  # fmt: skip


@pytest.fixture
def hostile(tmp_path):
    """A folder with modules that must not be executed; each would leave a line in `executed`."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    trap = (
        f"with open({str(tmp_path / 'executed')!r}, 'a') as file:\n    file.write(__name__ + "
        f"'\\n')\n"
    )
    for name in TRAPS:
        (folder / f"{name}.py").write_text(trap)
    (folder / "ablate").mkdir()
    (folder / "ablate" / "__init__.py").write_text(trap)
    return folder


def start(words, folder, path):
    """Run a Python process in a folder; `path` is its PYTHONPATH, which leads to this package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = path.format(Path(ablate.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip


def script(folder):
    path = folder.parent / "bin" / "ablate"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


# An empty part of PYTHONPATH means the current folder; `PYTHONPATH=$PYTHONPATH:folder` makes one.
# Modules that Python and editable installs load when they start come from there before any code of
# this package is executed.
@pytest.mark.parametrize(
    ("path", "names"), [("{}", TRAPS), (":{}", ("torch", "numpy", "rich", "yaml", "random"))]
)
def test_a_study_runs_in_a_folder_with_modules_of_any_name(hostile, path, names):
    for name in set(TRAPS) - set(names):
        (hostile / f"{name}.py").unlink()
    if path != "{}":
        shutil.rmtree(hostile / "ablate")
    short = "train_steps: 2\n  beam: 1\n  max_extra_length: 1"
    study = write_study(hostile, TINY.partition("seeds:")[0].replace("train_steps: 30", short))
    done = start([script(hostile), "run", study, "--results", "results"], hostile, path)
    assert done.returncode == 0, done.stderr
    assert "PPL" in done.stdout
    assert not (hostile.parent / "executed").exists()


def test_python_m_loads_nothing_from_the_current_folder_either(hostile):
    """But for what Python looks up before any code of this package: a folder `ablate` and the
    modules of `runpy`.
    """
    shutil.rmtree(hostile / "ablate")
    code = "import runpy, sys; print(*sys.modules)"
    for name in subprocess.check_output([sys.executable, "-S", "-c", code], text=True).split():
        (hostile / f"{name}.py").unlink(missing_ok=True)
    done = start(["-m", "ablate", "plan", write_study(hostile)], hostile, "{}")
    assert done.returncode == 0, done.stderr
    assert not (hostile.parent / "executed").exists()


def test_a_folder_that_pythonpath_names_is_searched(hostile):
    (hostile / "mine.py").write_text("")
    code = (
        "import sys; sys.argv[0] = 'ablate'; import ablate, mine, os; "
        "print(os.environ['PYTHONPATH'] == sys.argv[1])"
    )
    path = f"{Path(ablate.__file__).parents[1]}{os.pathsep}{hostile}"
    for name in TRAPS:
        (hostile / f"{name}.py").unlink()
    done = start(["-c", code, path], hostile.parent, path)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_process_that_only_imports_the_package_keeps_its_path(tmp_path):
    (tmp_path / "mine.py").write_text("")
    done = start(
        ["-c", "import ablate, mine, sys, os; print(sys.path[0], 'PYTHONSAFEPATH' in os.environ)"],
        tmp_path,
        "{}",
    )
    assert (done.stdout, done.stderr) == (" False\n", "")


def test_a_worker_loads_nothing_from_the_current_folder(hostile):
    done = start(WORKER[1:], hostile, "{}")
    assert (done.returncode, done.stdout, done.stderr) == (0, READY, "")
    assert not (hostile.parent / "executed").exists()


def test_a_worker_is_the_package_of_its_launcher_and_exits_with_its_code(tmp_path):
    done = start(
        [*python_command("ablate.interpreter")[1:-2], tmp_path / "ablate", "ablate.mine"],
        tmp_path,
        "{}",
    )
    assert "No such file" in done.stderr  # and not the package on the path
    (tmp_path / "ablate").mkdir()
    (tmp_path / "ablate" / "__init__.py").write_text("")
    (tmp_path / "ablate" / "mine.py").write_text("def main():\n    return 7\n")
    done = start(
        [*python_command("ablate.interpreter")[1:-2], tmp_path / "ablate", "ablate.mine"],
        tmp_path,
        "{}",
    )
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.parametrize("path", [":", "::"])
def test_a_pythonpath_of_empty_parts_alone_means_no_folder(hostile, path):
    shutil.rmtree(hostile / "ablate")
    for name in set(TRAPS) - {"numpy", "rich"}:
        (hostile / f"{name}.py").unlink()
    file = script(hostile)
    root = str(Path(ablate.__file__).parents[1])
    file.write_text(
        f"import sys\nsys.path.append({root!r})\nimport ablate, numpy, rich, os\n"
        "print('PYTHONPATH' in os.environ)\n"
    )
    done = start([file], hostile, path)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert not (hostile.parent / "executed").exists()


def test_an_editable_install_is_found_from_the_folder_that_holds_the_clone(tmp_path):
    """Python takes the clone's folder for a package without content, unless the path leads on to
    the package.
    """
    clone, site = tmp_path / "ablate", tmp_path / "site"
    (clone / "ablate").mkdir(parents=True)
    (clone / "ablate" / "__init__.py").write_text("__version__ = '1'\njudge = load = 'found'\n")
    root = Path(ablate.__file__).parents[1]
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, clone)
    pytest.importorskip("setuptools")
    code = (
        f"import zipfile; from setuptools.build_meta import build_editable; "
        f"name = build_editable({str(tmp_path)!r}); "
        f"zipfile.ZipFile({str(tmp_path)!r} + '/' + name).extractall({str(site)!r})"
    )
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    # `-S`: without this environment, in which ablate may be installed in another way.
    code = f"import site; site.addsitedir({str(site)!r}); import ablate; print(ablate.judge, ablate.load)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("found found\n", "")
