"""Architecture: imports between packages, forbidden calls, and the checks of CONTRIBUTING."""

import ast
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks.mutation import TESTS
from tests.sentences import readings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ablate"
CHECKED = ("ablate", "benchmarks", "docs", "scripts/test", "tests")  # no code of a user's own
MODULES = {
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path
    for path in PACKAGE.rglob("*.py")
}

PAGE = (ROOT / "docs/architecture.md").read_text()
# The rows of the page's table, the ground floor first, and what `import ablate` and `python -m
# ablate` offer.
FLOORS = [*re.findall(r"^\| `(\w+)(?:/|\.py)` \|", PAGE, re.MULTILINE), "__init__", "__main__"]
FLOOR = {name: floor for floor, name in enumerate(FLOORS)}


def part(module):
    """The package, or the module at the top, that a module belongs to: `study` for
    `ablate.study.rows`.
    """
    return module.split(".")[1]


@cache
def nodes(module):
    """Its imports and calls, those inside functions too."""
    tree = ast.parse(MODULES[module].read_text())
    kinds = (ast.Import, ast.ImportFrom, ast.Call)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def called(node):
    """The dotted name of what a call calls, such as `sys.stdout.write`; `.write` of what has no
    name.
    """
    words, func = [], node.func
    while isinstance(func, ast.Attribute):
        words.append(func.attr)
        func = func.value
    words.append(func.id if isinstance(func, ast.Name) else "")
    return ".".join(reversed(words))


def imports(module):
    """Yield (line, imported module of ablate) for every import in a module."""
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno}: imports are written in full"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in inner]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "ablate")


def test_the_page_of_the_architecture_has_each_package_once():
    assert sorted(FLOORS) == sorted({part(module) for module in MODULES})


def test_a_module_imports_only_from_floors_below_its_own():
    above = []
    for module in sorted(MODULES):
        package = part(module)
        for line, name in imports(module):
            is_inside = not name.count(".") or part(name) == package
            if not is_inside and FLOOR.get(part(name), -1) >= FLOOR[package]:
                above.append(f"{module}:{line}: imports {name}")
    assert above == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: {resolved(name) for _, name in imports(module)} for module in MODULES}
    while leaves := [module for module, imported in graph.items() if not imported & graph.keys()]:
        for module in leaves:
            del graph[module]
    # Modules that are left import each other, or import such a module: only the former are in a
    # circle.
    while roots := [
        module for module in graph if not any(module in imported for imported in graph.values())
    ]:
        for module in roots:
            del graph[module]
    assert sorted(graph) == []


def resolved(name):
    """The module that an import loads: a package's `__init__` for its name."""
    return name if name in MODULES else f"{name}.__init__"


def test_no_command_imports_another_command():
    commands = {
        module
        for module, path in MODULES.items()
        if part(module) == "cli" and "\ndef command(" in path.read_text()
    }
    assert len(commands) > 10
    found = {
        (module, name) for module in commands for _, name in imports(module) if name in commands
    }
    assert found == set()


def imported_by(*names):
    """Modules that are loaded after importing these modules in a new process."""
    script = f"import sys; import {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["study", "stats", "store", "table", "report", "cli"])
def test_modules_for_plans_and_tables_never_load_torch_or_pandas(name):
    modules = sorted(module.removesuffix(".__init__") for module in MODULES if part(module) == name)
    if name == "cli":  # of its commands, those that answer at once
        modules = [
            "ablate.cli",
            *(f"ablate.cli.{command}" for command in ("app", "plan", "status", "table")),
        ]
    assert not imported_by(*modules) & {"torch", "pandas", "sentencepiece", "sacrebleu"}


def test_a_command_loads_no_task_no_engine_and_no_frames_before_they_are_asked_for():
    loaded = {name for name in imported_by("ablate.cli.run") if name.startswith("ablate.")}
    assert not loaded & {
        "ablate.tasks.translation", "ablate.tasks.synthetic", "ablate.tasks.language_model",
        "ablate.cluster.slurm", "ablate.cluster.ray_cluster", "ablate.frames",
    }  # fmt: skip


def test_judge_and_the_table_load_nothing_of_a_study_or_its_results():
    tables = [module for module in MODULES if part(module) in ("table", "judging")]
    names = [name.removesuffix(".__init__") for name in (*tables, "ablate.cli.judge")]
    loaded = {name.split(".")[1] for name in imported_by(*names) if name.startswith("ablate.")}
    assert not loaded & {"study", "store", "tasks", "config", "data", "analysis"}


UNPICKLING = ("pickle", "marshal", "shelve", "dill")
FORBIDDEN = ("eval", "exec", "compile", "os.system", "os.popen", "torch.load")


def test_the_code_never_unpickles_evaluates_or_calls_a_shell():
    found = []
    for module in sorted(MODULES):
        for node in nodes(module):
            if isinstance(node, ast.Call):
                name = called(node)
                has_shell = any(keyword.arg == "shell" for keyword in node.keywords)
                if name in FORBIDDEN or has_shell:
                    found.append(f"{module}:{node.lineno}: {name}")
                continue
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            loaded = [name for name in names if name.split(".")[0] in UNPICKLING]
            found += [f"{module}:{node.lineno}: {name}" for name in loaded]
    assert found == []


PRINTING = ("Console", "print", "typer.echo", "click.echo", "typer.secho")
WRITING = ("sys.stdout.write", "sys.stderr.write", "Text.from_markup", "Text.from_ansi")


def test_only_stdio_prints():
    """One factory of consoles, and one function that prints: every other call would go around the
    escapes.
    """
    found = []
    for module in sorted(MODULES.keys() - {"ablate.stdio"}):
        for node in nodes(module):
            if isinstance(node, ast.Call):
                name = called(node)
                if name in PRINTING or name.startswith(WRITING):
                    found.append(f"{module}:{node.lineno}: {name}")
    assert found == []


# What has no code: texts of other programs, and the verdicts of a table, which are data.
READ = {
    "ablate.data.vocabulary": "SentencePiece reports faults of a text in an exception's text alone",
    "ablate.kernels.device": "so does PyTorch that memory is exhausted",
    "ablate.study.yaml_nodes": "so does PyYAML where a mapping is wrong",
    "ablate.stats.judge": "a verdict is a word of the table",
    "ablate.stats.verdict": "a verdict is a word of the table",
}


def test_no_code_reads_a_sentence_that_is_for_people():
    """Faults are values, and sentences are made at the edge: a changed word changes no program."""
    found = {}
    for module in sorted(MODULES):
        for line, code in readings(ast.parse(MODULES[module].read_text())):
            found.setdefault(module, []).append(f"{line}: {code}")
    assert {module: found[module] for module in found.keys() - READ} == {}
    assert READ.keys() - found == set()


FORMERLY_READ = (
    # study/settings.py
    "def named_mark(message, places):\n    for match in _FIELD_NAMES.finditer(message):\n        yield match[1]",
    # study/settings_reader.py
    "def for_a_group(message, beside):\n    reason = message.partition(' has no effect with ')[2]",
    "def for_a_group(reason, name):\n    return re.search(name, reason)",
    "def for_a_group(message):\n    return message.replace('; remove it', '; change it')",
    # study/reader.py
    "def blame(lines):\n    for line in lines:\n        position, _, message = line.partition(': ')",
    # study/overrides.py
    "try:\n    parse()\nexcept StudyError as error:\n    raise ValueError(error.lines[0].partition(': ')[2])",
    # launch/launch.py
    "def log(run):\n    damage = damage_of(run)\n    fault, _, _ = damage.partition('; `ablate')",
    # store/jobs.py
    "def awaited(report):\n    return report.reason.startswith(REQUEUED)",
    "NOTHING_LEFT = 'nothing is left to do'\ndef stop_reason(text):\n    return text.decode().strip() == NOTHING_LEFT",
    # page/html.py
    "def warnings(legend):\n    return [line for line in legend if line.startswith('WARNING')]",
    # data/preparation.py
    "kept = [line for line in before.noticed if not line.startswith('test ')]",
    # custom/faults.py
    "def placed(error: StudyError, starts):\n    return error.lines[0].startswith(starts)",
    "def given(plugin, message):\n    return re.match(rf'{plugin}() takes ', message)",
    # cli/usage.py
    "def usage_error(error):\n"
    "    message = error.message.rstrip('.')\n"
    "    if message.startswith('Got unexpected extra argument'):\n"
    "        return message",
    # analysis/missing_scores.py
    "try:\n    score()\nexcept Damaged as error:\n    is_told = '`ablate run`' in str(error)",
    # publication/archive.py
    "kind = failure.reason.partition(':')[0]",
    # table/conclusion.py
    "is_undecoded = run.note == UNDECODED",
    # and the other ways
    "try:\n    check()\nexcept ValueError as error:\n    is_unknown = error.args[0] == text",
    "def is_known(error: Exception):\n    return f'{error}'.endswith('known')",
    "def unfit(task):\n    for line in task.check(data):\n        yield line.split(':')[0]",
    "is_size = details['msg'].startswith('Input should be greater')",
)  # fmt: skip


@pytest.mark.parametrize("code", FORMERLY_READ)
def test_a_place_that_read_a_sentence_would_be_found(code):
    assert list(readings(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "def shown(error: Exception):\n    return f'no: {error}'",
        "def first(message):\n    return message.strip() or 'nothing'",
        "def is_known(fault):\n    return 'd_k' in fault.fields",
        "try:\n    read()\nexcept OSError as error:\n    is_full = error.errno == ENOSPC",
        "def cells(row):\n    return row.split(',')",
    ],
)
def test_sentences_may_be_made_and_fields_of_faults_read(code):
    assert list(readings(ast.parse(code))) == []


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
    paths = [
        "/".join(("", *words))
        for words in (("work", ""), ("root", ""), ("home", ""), ("tmp", "bash"))
    ]
    assert [(name, path) for name, text in committed() for path in paths if path in text] == []


def run(*words):
    """Run a tool with the arguments of CI; returns its output if it fails."""
    if importlib.util.find_spec(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_direct_tests_of_a_mutant_exist():
    files = {file for module in TESTS for file in TESTS[module]}
    assert [file for file in sorted(files) if not (ROOT / file).is_file()] == []


def test_the_direct_tests_of_a_file_are_those_of_its_name_and_those_that_are_listed():
    script = runpy.run_path(str(ROOT / "scripts/test"))
    listed = {test for tests in script["OTHER_TESTS"].values() for test in tests}
    assert [test for test in sorted(listed) if not (ROOT / test).is_file()] == []
    of_mixers = {"tests/parts/test_variants.py", "tests/config/test_cost.py"}
    of_attention = {f"tests/model/test_{name}.py" for name in ("attention", "mechanisms")}
    assert set(script["tests_of"]("ablate/parts/mixers.py")) == of_mixers
    assert set(script["tests_of"]("ablate/model/attention.py")) == of_attention


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/extending.md"])
def test_every_path_and_name_in_the_pages_for_contributors_exists(page):
    page = (ROOT / page).read_text()
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    code = set(re.findall(r"`([^`\s]+)`", text))
    paths = {
        name
        for name in code
        if re.match(r"(ablate|tests|benchmarks|docs|scripts|studies|\.ci)/[\w./-]*$", name)
    }
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    sources = "\n".join(
        [*MODULES, *(path.read_text() for path in [*MODULES.values(), ROOT / "pyproject.toml"])]
    )
    names = {
        part for name in code if re.fullmatch(r"[A-Za-z_][\w.]*", name) for part in name.split(".")
    }
    known = set(re.findall(r"\w+", sources)) | {
        path.stem for path in (ROOT / "tests").rglob("*.py")
    }
    known |= {
        "TESTS", "LINES", "SOLVERS", "pyproject", "git", "add", "pip", "tests", "yaml", "json",
        "md", "txt", "constraints", "yml", "toml",
    }  # fmt: skip
    assert sorted(names - known) == []


def test_ruff_finds_no_error():
    run("ruff", "check", *CHECKED)


def test_ruff_format_changes_nothing():
    run("ruff", "format", "--check", *CHECKED)


def test_commands_in_messages_carry_the_results_root():
    """`Results.command` adds --results, without which the command would not help."""
    written = re.compile(r"`ablate (?!init)[a-z ]+ (STUDY|\{)")
    found = []
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr) and written.search(ast.unparse(node)):
                found.append(f"{module}:{node.lineno}")
    assert found == []
    assert written.search("`ablate run {study.path}` trains it")
