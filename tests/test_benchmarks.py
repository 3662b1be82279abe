"""Every benchmark still runs, with its smallest size; what it measures is not looked at."""

import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import mutation
from tests.forked import Forked

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SMALLEST = {
    "grid": "--runs 10",
    "kernels": "--sizes XS --precisions fp32 --pairs 1 --warm-up 0 --only smoothed_cross_entropy",
    "mixers": "--size XS --length 8 --tokens 16 --rounds 1",
    "nanogpt_loop": "{text}/train.en --steps 1",
    "ours": "curve XS fp32 --steps 1",
    "parametrization": "--steps 1 --widths 32",
    "prepare": "--text {text} --pairs 3000 --vocab-size 120 --rounds 1",
    "spreads": "state",
    "speed": "--work start --sizes XS --rounds 1",
    "streams": "--nights 3",
    "verdicts": "--draws 10 --only base",
    "workers": "--rounds 1 --seconds 0.1 --only bf16",
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("text"), random.Random(1)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "ei", "o", "um")]
    for language in ("en", "de"):
        lines = (" ".join(draw.choices(words, k=8)) for _ in range(3000))
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_every_benchmark_has_a_smallest_size():
    scripts = {path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text()}
    with_tests_of_their_own = {"gpu", "pilots"}  # in tests/gpu and tests/launch
    assert scripts - with_tests_of_their_own == {"mutation", *SMALLEST}


def main():
    """Execute the script that `sys.argv` names after this module, as Python does."""
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(BENCHMARKS))
    runpy.run_path(sys.argv[0], run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs(name, text, monkeypatch):
    monkeypatch.chdir(BENCHMARKS.parent)
    words = SMALLEST[name].format(text=text).split()
    process = Forked("tests.test_benchmarks", BENCHMARKS / f"{name}.py", *words)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert output


@pytest.mark.slow
def test_the_mutation_of_a_module_runs():
    """In a new interpreter: it runs tests itself, with modules that are loaded anew."""
    words = ["-m", "benchmarks.mutation", "training/schedule", "--sample", "1"]
    done = subprocess.run(
        [sys.executable, *words], cwd=BENCHMARKS.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_watcher_of_the_pilots_takes_every_event():
    from ablate.launch.control import Watcher
    from benchmarks.pilots import Timing

    events = {name for name in vars(Watcher) if not name.startswith("_")}
    assert events <= set(dir(Timing))


def test_each_equivalent_mutant_is_one_of_the_present_code():
    known = mutation.equivalent()
    for module in {place.module for place in known}:
        file = f"ablate/{module}.py"
        source = (BENCHMARKS.parent / file).read_text(encoding="utf-8")
        places = {mutant.place for mutant in mutation.mutants_of(file, source)}
        assert {place for place in known if place.module == module} <= places
