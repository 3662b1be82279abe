"""Every benchmark still runs, with its smallest size; what it measures is not looked at."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SMALLEST = {
    "grid": "--runs 10",
    "kernels": "--sizes XS --precisions fp32 --pairs 1 --warm-up 0 --only dropout_add",
    "mixers": "--size XS --length 8 --tokens 16 --rounds 1",
    "mutation": "training/schedule --sample 1",
    "nanogpt_loop": "{text}/train.en --steps 1",
    "ours": "curve XS fp32 --steps 1",
    "parametrization": "--steps 1",
    "prepare": "--text {text} --pairs 3000 --vocab-size 120 --rounds 1",
    "pruning": "--draws 20",
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
    assert scripts - with_tests_of_their_own == set(SMALLEST)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs(name, text):
    words = SMALLEST[name].format(text=text).split()
    script = ["-m", "benchmarks.mutation"] if name == "mutation" else [BENCHMARKS / f"{name}.py"]
    done = subprocess.run(
        [sys.executable, *script, *words], cwd=BENCHMARKS.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
