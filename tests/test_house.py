"""The house itself: who may import whom, what stays out, and that the checks of CONTRIBUTING pass."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ablate"
MODULES = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path for path in PACKAGE.rglob("*.py")}

FLOORS = (
    ("errors", "paper", "formatting"),
    ("config",),
    ("study", "kernels", "stats"),
    ("store",),
    ("data", "model"),
    ("training", "decoding"),
    ("metrics",),
    ("run", "report"),
    ("launch", "loggers", "export", "analysis", "page"),
    ("cli",),
    ("__init__", "__main__"),  # of the whole: what `import ablate` and `python -m ablate` offer
)
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}

LONGEST_MODULE = 300  # lines


def part(module):
    """The part of the house that a module belongs to: `ablate.study.rows` is of `study`."""
    return module.split(".")[1]


def imports(module):
    """(line, module of ablate) for every import in a module, those inside functions too."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno}: imports are written in full"
            names = [node.module] if node.module != "ablate" else [f"ablate.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "ablate")


def test_every_module_has_its_floor():
    parts = {part(module) for module in MODULES} - {"__init__"}
    assert parts <= set(FLOOR)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_floors_below_its_own(module):
    own = part(module)
    above = [
        f"{module}:{line}: imports {name}"
        for line, name in imports(module)
        if name.count(".") and part(name) != own and FLOOR.get(part(name), -1) >= FLOOR.get(own, 0)
    ]
    assert above == []


def imported_by(*names):
    """What is loaded after importing these modules in a process of its own."""
    script = f"import sys; import {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["study", "stats", "store", "report", "cli"])
def test_what_plans_and_tables_need_never_loads_torch_or_pandas(name):
    modules = sorted(module.removesuffix(".__init__") for module in MODULES if part(module) == name)
    if name == "cli":  # of its commands, those that answer at once
        modules = ["ablate.cli", *(f"ablate.cli.{command}" for command in ("app", "plan", "status", "table"))]
    assert not imported_by(*modules) & {"torch", "pandas", "sentencepiece", "sacrebleu"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_module_is_long(module):
    assert len(MODULES[module].read_text().splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize("module", sorted(MODULES))
def test_nothing_is_unpickled_evaluated_or_given_to_a_shell(module):
    found = []
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [name for name in names if name.split(".")[0] in ("pickle", "marshal", "shelve", "dill")]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            found += [called] if called in ("eval", "exec", "compile", "os.system", "os.popen", "torch.load") else []
            found += [f"{called}(shell=...)" for keyword in node.keywords if keyword.arg == "shell"]
    assert found == []


def committed():
    """Every file that git knows, with its text; binary ones are left out."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue


def test_no_file_holds_a_path_of_a_machine():
    paths = ["/".join(("", *words)) for words in (("work", ""), ("root", ""), ("home", ""), ("tmp", "bash"))]
    assert [(name, path) for name, text in committed() for path in paths if path in text] == []


def run(*words):
    """Run a tool as CI does; its output where it finds fault."""
    if importlib.util.find_spec(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_no_fault():
    run("ruff", "check", ".")


def test_ruff_would_format_nothing_otherwise():
    run("ruff", "format", "--check", ".")


def test_mypy_finds_no_fault():
    run("mypy", "--strict")
