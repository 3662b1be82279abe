"""Mutation run: plant small bugs in the package, one at a time, and list those that no direct test
notices.

    python -m benchmarks.mutation [MODULE ...] [--sample N] [--seed S] [--timeout SECONDS] [--json
    FILE]

Each mutant is one change to one file: a comparison, an arithmetic operator, a constant, a
condition, the order of two arguments, a returned value, or a statement that is left out. The direct
tests of the file (`TESTS`) run on a temporary copy of the repository. The mutant is killed if a
test fails, or uses more processor time than the limit; the latter are also counted apart. The
others survive: a test is missing, or the change has no effect. `equivalent.yaml`
lists those without an effect, with the reason; they do not count in the score, which is the share
of killed mutants. An entry that fits no mutant any more ends the run.

Tests of a mutant run in a fork of a process that has collected them (`Server`), so that a mutant
costs little beyond the tests up to the first that fails. Hypothesis does not simplify an example
that fails.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import itertools
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[1]
Outcome = Literal["killed", "timeout", "survived"]
WAITING = 60  # times the limit of processor time: the wait for tests that hang without using it
ALL_TESTS = 10  # times the limit for one test: the limit for all tests of a file together
LOADED = ("torch", "numpy", "pandas", "pydantic", "sacrebleu", "sentencepiece", "pyarrow", "matplotlib", "pytest",
          "scipy.stats", "scipy.special", "statsmodels.stats.multitest", "rich.console", "typer",
          "yaml", "jinja2")  # fmt: skip
COPIED = (
    "ablate",
    "tests",
    "benchmarks",
    "docs",
    "studies",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)

# Without tests/tasks/test_own_task.py, which trains in processes of its own for a minute.
TASKS = ("tests/tasks/test_translation.py", "tests/checks/test_tasks.py", "tests/tasks/test_parsing.py",
         "tests/tasks/test_language_model.py", "tests/tasks/test_masked_lm.py",
         "tests/tasks/test_every_task.py")  # fmt: skip

# The direct tests of each module, the fastest and most specific first. The first failure ends the
# tests of a mutant.
TESTS: dict[str, tuple[str, ...]] = {
    "checks/layers": ("tests/checks/test_layers.py",),
    "checks/properties": ("tests/checks/test_tasks.py", "tests/checks/test_layers.py"),
    "checks/tasks": ("tests/checks/test_tasks.py",),
    "checks/training": ("tests/training/test_update_rules.py", "tests/training/test_loss_term.py"),
    "stats/bootstrap": ("tests/stats/test_bootstrap.py", "tests/metrics/test_resampling.py"),
    "stats/comparison": ("tests/stats/test_verdict.py", "tests/stats/test_power.py", "tests/stats/test_looks.py",
                         "tests/analysis/test_further_seeds.py"),
    "stats/distributions": ("tests/stats/test_distributions.py",),
    "stats/factorial": ("tests/stats/test_factorial.py", "tests/study/test_designs.py"),
    "stats/judge": ("tests/stats/test_verdict.py", "tests/stats/test_looks.py"),
    "stats/looks": ("tests/stats/test_looks.py",),
    "stats/noise": ("tests/stats/test_noise.py", "tests/stats/test_verdict.py"),
    "stats/power": ("tests/stats/test_power.py",),
    "stats/significance": ("tests/stats/test_significance.py",),
    "stats/verdict": ("tests/stats/test_verdict.py", "tests/stats/test_looks.py"),
    "store/audit": ("tests/store/test_cleaning.py", "tests/cli/test_stored.py"),
    "store/checkpoints": ("tests/store/test_checkpoints.py", "tests/training/test_checkpointing.py"),
    "store/cleaning": ("tests/store/test_cleaning.py",),
    "store/corpora": ("tests/store/test_corpora.py", "tests/data/test_prepare.py"),
    "store/files": ("tests/store/test_files.py", "tests/store/test_records.py"),
    "store/filesystem": ("tests/store/test_filesystem.py",),
    "store/jobs": ("tests/store/test_jobs.py",),
    "store/layout": ("tests/store/test_layout.py", "tests/store/test_status.py"),
    "store/lease": ("tests/store/test_lease.py",),
    "store/machine": ("tests/store/test_machine.py", "tests/store/test_status.py"),
    "store/records": ("tests/store/test_records.py", "tests/store/test_files.py", "tests/cluster/test_pilot.py"),
    "store/score_cache": ("tests/store/test_score_cache.py", "tests/analysis/test_missing_scores.py"),
    "store/status": ("tests/store/test_status.py",),
    "tasks/__init__": ("tests/tasks/test_base.py", *TASKS),
    "tasks/base": ("tests/tasks/test_base.py", *TASKS, "tests/metrics/test_perplexity.py"),
    "tasks/helpers": ("tests/tasks/test_language_model.py",),
    "tasks/language_model": ("tests/tasks/test_language_model.py",),
    "tasks/masked_lm": ("tests/tasks/test_masked_lm.py", "tests/data/test_masking.py"),
    "tasks/synthetic": ("tests/tasks/test_synthetic.py", "tests/data/test_items.py"),
    "tasks/text": ("tests/tasks/test_language_model.py", "tests/tasks/test_masked_lm.py"),
    "tasks/parsing": ("tests/tasks/test_parsing.py",),
    "tasks/sequence_to_sequence": ("tests/tasks/test_base.py", *TASKS),
    "tasks/translation": ("tests/tasks/test_translation.py", "tests/tasks/test_base.py", "tests/tasks/test_parsing.py"),
    "training/checkpointing": ("tests/training/test_checkpointing.py",),
    "training/hooks": ("tests/training/test_hooks.py", "tests/training/test_trainer.py"),
    "training/gradient_tree": ("tests/training/test_ranks.py",),
    "training/progress": ("tests/training/test_trainer.py", "tests/training/test_resume.py"),
    "training/resume": ("tests/training/test_resume.py", "tests/training/test_checkpointing.py",
                        "tests/training/test_ranks.py"),
    "training/metrics_log": ("tests/training/test_metrics_log.py", "tests/training/test_checkpointing.py",
                             "tests/training/test_resume.py", "tests/training/test_trainer.py"),
    "training/optimizer": ("tests/training/test_optimizer.py", "tests/training/test_update_rules.py"),
    "training/update_rules": ("tests/training/test_optimizer.py", "tests/training/test_update_rules.py"),
    "training/schedule": ("tests/training/test_schedule.py",),
    "training/step_batches": ("tests/training/test_step_batches.py", "tests/training/test_growing_batches.py",
                              "tests/training/test_trainer.py"),
    "training/trainer": ("tests/training/test_hooks.py", "tests/training/test_trainer.py",
                         "tests/training/test_resume.py", "tests/training/test_step_batches.py",
                         "tests/training/test_checkpointing.py", "tests/training/test_ranks.py"),
}  # fmt: skip

# Mutants without an effect that a test could see, each with its module, function, statement and the
# reason.
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "bases", "type_params"}
_BLOCKED = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)


class Place(NamedTuple):
    """A mutant, by what reformatting its file does not change."""

    module: str
    function: str
    statement: str
    mutant: str


def equivalent() -> dict[Place, str]:
    """The mutants without an effect, and why."""
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8"))
    return {Place(*(entry[name] for name in Place._fields)): entry["reason"] for entry in entries}


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two offsets of a file, in bytes of UTF-8, and its
    replacement.
    """

    file: str
    line: int
    start: int
    end: int
    before: str  # as `ast.unparse` writes it
    after: str
    function: str  # qualified; empty outside of functions and classes
    statement: str  # its first line, as `ast.unparse` writes it

    def __str__(self) -> str:
        return f"{self.before} -> {self.after}"

    @property
    def tests(self) -> tuple[str, ...]:
        """The direct tests of the file."""
        return TESTS[self.module]

    @property
    def place(self) -> Place:
        """What finds the mutant again in a file whose lines have moved."""
        return Place(self.module, self.function, self.statement, str(self))

    @property
    def module(self) -> str:
        """The name of the file, such as `store/lease`."""
        return self.file.removeprefix("ablate/").removesuffix(".py")


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file, in the order of the text."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, function, statement in _nodes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        for after in _changes(node):
            yield Mutant(
                file, node.lineno, start, end, ast.unparse(node), after, function, statement
            )


def _nodes(
    node: ast.AST, function: str = "", statement: str = ""
) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Yield the expressions and statements that may be changed, each with its function and its
    statement; no annotations, docstrings, messages or imports.

    Assertions are not changed, nor is `zip(..., strict=True)`, which is one: they hold for every
    input. Nor are waits (`time.sleep`), because no test depends on time, and the text of log lines.
    """
    if isinstance(node, _BLOCKED) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ):
        return
    if (isinstance(node, ast.keyword) and node.arg == "strict") or _is_call(node, "time.sleep"):
        return
    if isinstance(node, ast.stmt):
        statement = ast.unparse(node).splitlines()[0]
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node, function, statement
    # Messages are not behavior.
    if isinstance(node, ast.Raise) or _is_call(node, "log.info", "log.warning"):
        return
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        function = f"{function}.{node.name}".removeprefix(".")
    for name, value in ast.iter_fields(node):
        if name not in _SKIPPED_FIELDS:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _nodes(child, function, statement)


def _is_call(node: ast.AST, *names: str) -> bool:
    """Whether a node is a call, by itself or as a statement, of a function whose name ends so."""
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func).endswith(names)


def _changes(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield the replacements of one node."""
    if isinstance(node, ast.stmt):
        yield from _changed_statements(node)
    else:
        for changed in _changed_expressions(node):
            yield f"({ast.unparse(changed)})"


def _changed_statements(node: ast.stmt) -> Iterator[str]:
    if (
        isinstance(node, ast.Raise)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or isinstance(node, ast.AugAssign)
    ):
        yield "pass"
    elif isinstance(node, ast.Return) and not (node.value is None or _is_falsy(node.value)):
        yield "return None"
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield "continue" if isinstance(node, ast.Break) else "break"


def _changed_expressions(node: ast.expr) -> Iterator[ast.expr]:
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare) and len(changed.ops) == 1:
        changed.ops = [_COMPARISONS[type(changed.ops[0])]()]
        yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        yield changed
    elif isinstance(changed, ast.BinOp) and type(changed.op) in _OPERATORS:
        changed.op = _OPERATORS[type(changed.op)]()
        yield changed
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, (ast.Not, ast.USub)):
        yield changed.operand
    elif isinstance(changed, ast.IfExp):
        changed.body, changed.orelse = changed.orelse, changed.body
        yield changed
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, (bool, int, float)):
        value = changed.value
        yield ast.Constant(not value if isinstance(value, bool) else value + 1)
    elif isinstance(changed, ast.Call) and _has_order(changed):
        changed.args[:2] = changed.args[1::-1]
        yield changed


def _is_falsy(node: ast.expr) -> bool:
    """Whether an expression is None or False, which conditions do not tell apart."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _has_order(call: ast.Call) -> bool:
    """Whether the first two arguments can be exchanged, and the value may then be another."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    symmetric = name in ("max", "min", "hypot")
    if (
        len(call.args) < 2
        or symmetric
        or any(isinstance(node, ast.Starred) for node in call.args[:2])
    ):
        return False
    return ast.dump(call.args[0]) != ast.dump(call.args[1])


def modules_of(name: str) -> list[str]:
    """The modules with direct tests of a package, such as `store`, or the module itself, such as
    `store/lease`.
    """
    return [module for module in TESTS if name in (module, module.split("/")[0])]


def all_mutants(modules: Iterable[str]) -> list[Mutant]:
    """The mutants of some modules that still are Python."""
    found = []
    for module in modules:
        source = (ROOT / "ablate" / f"{module}.py").read_text(encoding="utf-8")
        mutants = mutants_of(f"ablate/{module}.py", source)
        found += [mutant for mutant in mutants if _compiles(mutated(source, mutant))]
    return found


def mutated(source: str, mutant: Mutant) -> str:
    """The text of the file with the bug."""
    content = source.encode()
    return (content[: mutant.start] + mutant.after.encode() + content[mutant.end :]).decode()


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class Copy:
    """A temporary copy of the repository in which tests run."""

    def __init__(self, folder: Path, timeout: int) -> None:
        self.folder, self.temporary, self.timeout = folder / "copy", folder / "temporary", timeout
        self.folder.mkdir()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source, self.folder / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            elif source.exists():
                shutil.copy(source, self.folder / name)

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The file with the bug, for processes that start in the meantime."""
        path = self.folder / mutant.file
        source = path.read_text(encoding="utf-8")
        # A compiled file is known by the time and the size of its source, which a mutant may share
        # with the original.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        path.write_text(mutated(source, mutant), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(source, encoding="utf-8")

    def outcome(self, mutant: Mutant) -> Outcome:
        """Run the direct tests of the mutant's file in an interpreter that loads the file with the
        bug.
        """
        with self.planted(mutant):
            return in_fork(lambda: self.run_pytest(mutant.tests, ("-x",)), ALL_TESTS * self.timeout)

    def run_pytest(
        self, tests: Sequence[str], options: Sequence[str] = (), *plugins: object
    ) -> int:
        """Run tests in this process, which must be a fork; returns the exit code of pytest."""
        os.chdir(self.folder)
        sys.dont_write_bytecode = True
        sys.path[:] = [
            str(self.folder),
            *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT),
        ]
        os.environ.update(PYTHONPATH=str(self.folder), PYTHONDONTWRITEBYTECODE="1")
        sink = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(sink, stream)
        import pytest

        plain = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly")
        return int(
            pytest.main(
                [*plain, f"--basetemp={self.temporary}", *options, *tests],
                [FirstExample(), *plugins],
            )
        )


def in_fork(call: Callable[[], int], limit: int) -> Outcome:
    """Run the tests of a mutant in a fork.

    Args:
        call: runs them, and returns 0 if all pass.
        limit: processor seconds. A busy machine kills no mutant.
    """
    if (pid := os.fork()) == 0:
        code = 1
        with contextlib.suppress(BaseException):
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            code = call()
        os._exit(code)
    end = time.monotonic() + WAITING * limit
    late = False
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if late := time.monotonic() > end:
            _end_group(pid)
            ended = os.waitpid(pid, 0)
            break
        time.sleep(0.005)
    _end_group(pid)  # workers that a test has left behind
    code = os.waitstatus_to_exitcode(ended[1])
    return "timeout" if late or code == -signal.SIGXCPU else "killed" if code else "survived"


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class FirstExample:
    """A plugin of pytest: Hypothesis searches the same examples each time, and reports the first
    that fails.
    """

    def pytest_configure(self) -> None:
        import hypothesis  # after pytest, which rewrites its assertions

        hypothesis.settings.register_profile(
            "mutation",
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
            database=None, derandomize=True, deadline=None,
        )  # fmt: skip
        hypothesis.settings.load_profile("mutation")


class Server:
    """A process that has collected the direct tests of a file, and forks for each of its mutants.

    The fork replaces the code of the function with the mutant, and runs the tests, those first that
    have killed others. A value that the function has computed when the file was loaded stays as it
    was, so that a mutant may survive here that tests of a new process would kill. A test that fails
    must pass without a mutant.
    """

    def __init__(self, tree: Copy, tests: tuple[str, ...]) -> None:
        self.tree, self.tests = tree, tests
        self.connection, self._inner = multiprocessing.Pipe()
        self._functions: defaultdict[tuple[str, int, str], list[FunctionType]] = defaultdict(list)
        if (pid := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                tree.run_pytest(tests, (), self)
            os._exit(1)
        self._inner.close()
        self._pid = pid
        self._receive()  # before a mutant is planted, the files are loaded

    def _receive(self) -> Any:
        try:
            return self.connection.recv()
        except EOFError:
            raise SystemExit(f"{' '.join(self.tests)}: cannot be collected") from None

    def outcome(self, mutant: Mutant) -> Outcome | None:
        """Run the tests with the mutant; None for one outside of functions.

        Raises:
            SystemExit: a test fails without a mutant.
        """
        with self.tree.planted(mutant):
            self.connection.send(mutant)
            outcome: Outcome | None
            outcome, doubtful = self._receive()
        if doubtful is not None:  # only now, since a test may start processes that load the file
            self.connection.send(doubtful)
            if fault := self._receive():
                raise SystemExit(fault)
        return outcome

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        os.waitpid(self._pid, 0)

    # In the process

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve until the other end is closed."""
        self.connection.close()
        if session.testsfailed:
            os._exit(1)
        for value in gc.get_objects():
            if type(value) is FunctionType:
                code = value.__code__
                self._functions[code.co_filename, code.co_firstlineno, code.co_name].append(value)
        gc.freeze()  # a collection in a fork would copy the memory of every object
        read, write = os.pipe()
        os.set_blocking(read, False)
        order, sound = list(range(len(session.items))), set()
        self._inner.send(None)
        with contextlib.suppress(EOFError):
            while True:
                mutant, doubtful = self._inner.recv(), None
                function = self._function(mutant)
                outcome = (
                    None if function is None else self._in_fork(session, order, write, *function)
                )
                with contextlib.suppress(BlockingIOError):
                    killer = int.from_bytes(os.read(read, 4), "big")
                    doubtful = None if killer in sound else killer
                    sound.add(killer)
                    order.remove(killer)
                    order.insert(0, killer)
                self._inner.send((outcome, doubtful))
                if doubtful is not None and self._inner.recv() == doubtful:
                    passes = self._in_fork(session, [doubtful], write) == "survived"
                    self._inner.send(
                        "" if passes else f"{session.items[doubtful].nodeid} fails without a mutant"
                    )
        os._exit(0)

    def _function(self, mutant: Mutant) -> tuple[list[FunctionType], CodeType] | None:
        """(the loaded function with the mutant, its code with the mutant); None outside of
        functions.
        """
        path = self.tree.folder / mutant.file
        found = _function_code(mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
        return (
            None
            if found is None
            else (self._functions[str(path), found[0], found[1].co_name], found[1])
        )

    def _in_fork(
        self,
        session: pytest.Session,
        order: Sequence[int],
        write: int,
        functions: Iterable[FunctionType] = (),
        code: CodeType | None = None,
    ) -> Outcome:
        """Run tests until one fails, whose index is written."""

        def run() -> int:
            for function in functions:
                assert code is not None
                function.__code__ = code
            for index, following in itertools.zip_longest(order, order[1:]):
                limit = math.ceil(time.process_time() + self.tree.timeout)
                resource.setrlimit(
                    resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1])
                )
                item = session.items[index]
                item.config.hook.pytest_runtest_protocol(
                    item=item, nextitem=None if following is None else session.items[following]
                )
                if session.testsfailed:
                    os.write(write, index.to_bytes(4, "big"))
                    return 1
            return 0

        return in_fork(run, self.tree.timeout)


def _function_code(mutant: Mutant, source: str) -> tuple[int, CodeType] | None:
    """(first line, code with the bug) of the outermost function with the mutant in its body; None
    outside of them.
    """
    names: list[str] = []
    scope: ast.AST = ast.parse(source)
    line = 0
    while not line:
        definitions = [
            one
            for one in ast.iter_child_nodes(scope)
            if isinstance(one, (ast.ClassDef, ast.FunctionDef))
        ]
        inner = [one for one in definitions if one.lineno <= mutant.line <= (one.end_lineno or 0)]
        if not inner:
            return None
        (scope,) = inner
        names.append(scope.name)
        if isinstance(scope, ast.FunctionDef):
            if mutant.line < scope.body[0].lineno:
                return None
            line = min(scope.lineno, *(node.lineno for node in scope.decorator_list), scope.lineno)
    code = compile(mutated(source, mutant), mutant.file, "exec", dont_inherit=True)
    for name in names:
        inner_codes = [
            one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name
        ]
        code = next(one for one in inner_codes if one.co_firstlineno == line or name != names[-1])
    return line, code


def outcomes_of(mutants: Sequence[Mutant], timeout: int) -> Iterator[tuple[Mutant, Outcome]]:
    """Yield the outcome of each mutant, file by file.

    Raises:
        SystemExit: tests fail without a mutant, so that every mutant would count as killed.
    """
    ordered = sorted(mutants, key=lambda mutant: (mutant.file, mutant.start))
    with tempfile.TemporaryDirectory() as folder:
        tree = Copy(Path(folder).resolve(), timeout)
        for tests, group in itertools.groupby(ordered, key=lambda mutant: mutant.tests):
            server = Server(tree, tests)
            for mutant in group:
                yield mutant, server.outcome(mutant) or tree.outcome(mutant)
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    packages = ", ".join(dict.fromkeys(module.split("/")[0] for module in TESTS))
    parser.add_argument(
        "names", nargs="*", metavar="MODULE", help=f"such as store/lease, or all of {packages}"
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="test N mutants drawn at random; default: all"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--timeout", type=int, default=20, help="processor seconds for one test")
    parser.add_argument(
        "--json", type=Path, help="also write the outcome of each mutant to this file"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if not modules_of(name)]:
        parser.error(f"{', '.join(unknown)}: no module with direct tests; packages: {packages}")
    modules = {module: None for name in options.names for module in modules_of(name)} or TESTS
    candidates = all_mutants(modules)
    known = equivalent()
    found = {mutant.place for mutant in candidates}
    for place in known:
        if place.module in modules and place not in found:
            parser.error(f"{EQUIVALENT.name}: fits no mutant: {' | '.join(place)}")
    mutants = [mutant for mutant in candidates if mutant.place not in known]
    n_testable = len(mutants)
    if options.sample is not None and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    for name in LOADED:
        with contextlib.suppress(ImportError):
            __import__(name)
    rows: list[dict[str, object]] = []
    counts: dict[str, Counter[str]] = {}
    for mutant, outcome in outcomes_of(mutants, options.timeout):
        rows.append({**asdict(mutant), "outcome": outcome})
        counts.setdefault(mutant.file.split("/")[1], Counter())[outcome] += 1
        if outcome == "survived":
            print(f"{mutant.file}:{mutant.line}: {mutant}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for package, found in counts.items():
        print(f"{package}: {share(found)}")
    total = sum(counts.values(), Counter())
    print(
        f"{share(total)}; {len(candidates):,} mutants in all, {len(candidates) - n_testable} of "
        f"them equivalent"
    )


def share(outcomes: Counter[str]) -> str:
    """The score, and the numbers that it is based on."""
    n, caught = outcomes.total(), outcomes["killed"] + outcomes["timeout"]
    return (
        f"{caught} of {n} mutants killed ({caught / max(1, n):.1%}), {outcomes['timeout']} of "
        f"them by the limit of time"
    )


if __name__ == "__main__":
    main()
