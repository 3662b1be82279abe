"""Packages that are slow to import are imported only by the commands that need them."""

import json
import subprocess
import sys

import pytest

from tests.end_to_end.studies import command

HEAVY = ("torch", "pandas", "sacrebleu", "sentencepiece", "numpy", "safetensors")
VERBS = (
    "init", "plan", "run", "status", "table", "compare", "judge", "report", "predict", "attention", "export", "verify",
    "clean", "publish", "data", "cluster",
)  # fmt: skip

# Every command in one process: after each, which of the heavy packages are there.
PROBE = """
import io, json, sys
from contextlib import redirect_stdout
from ablate.cli import main
heavy, commands = json.loads(sys.argv[1])
loaded = {}
for words in commands:
    sys.argv = ["ablate", *words]
    try:
        with redirect_stdout(io.StringIO()):
            main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
    loaded[" ".join(words)] = [name for name in heavy if name in sys.modules]
print(json.dumps(loaded))
"""


@pytest.fixture
def some_results(fake):
    """Runs in every state, so that every part of a report is shown."""
    for seed in (1, 2, 3):
        fake.done("base", seed, 5.0, 25.0)
    fake.at("A h=1", 1, 5, alive=True)
    fake.at("A h=1", 2, 5, alive=False)
    fake.failed("A h=2", 1, "out of luck")
    fake.diverged("D dropout=0.3", 1, 50, "the loss is not a finite number")
    return fake


def test_help_plan_and_status_load_nothing_heavy_and_table_only_pandas(
    some_results, given, tmp_path
):
    study = [str(word) for word in given]
    commands = [
        ["--help"],
        ["--version"],
        *([verb, "--help"] for verb in VERBS),
        ["init", str(tmp_path / "new.yaml")],
        ["init", "--schema"],
        ["plan", *study, "--budget", "2h"],
        *(
            [verb, *study, *words]
            for verb in ("plan", "status")
            for words in ([], ["--format", "json"])
        ),
        ["table", *study],  # from here on pandas is loaded
        *(
            ["table", *study, "--format", format]
            for format in ("json", "markdown", "csv", "latex", "html")
        ),
        ["table", *study, "--against", "paper", "--cost"],
    ]
    probe = [sys.executable, "-c", PROBE, json.dumps([HEAVY, commands])]
    done = subprocess.run(probe, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert [
        loaded[" ".join(words)] for words in commands if words[0] != "table" or "--help" in words
    ] == [[] for words in commands if words[0] != "table" or "--help" in words]
    assert all(set(names) <= {"pandas", "numpy"} for names in loaded.values())
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--help"], []), (["init", "--schema"], ["init"]), (["plan", "-h"], ["plan"])],
)
def test_help_loads_no_command_and_a_command_no_other_one(words, expected):
    probe = (
        "import atexit, sys\nfrom ablate.cli import main\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *words], capture_output=True, text=True, check=True
    )
    loaded = done.stderr.split()
    assert [verb for verb in VERBS if f"ablate.cli.{verb}" in loaded] == expected
    if words == ["--help"]:  # the classes of all settings would take longer than the whole help
        assert not {"pydantic", "ablate.config", "ablate.store"} & set(loaded)


def test_a_table_with_verdicts_loads_nothing_heavy_once_translations_are_scored(fake, given):
    fake.all_done()
    fake.corpus(["a"], ["the old dog sleeps near the river"])
    for row in fake.study.rows:
        for seed in fake.study.seeds.rows:
            fake.translated(row.label, seed, ["the old dog sleeps"])
    table = ["table", *map(str, given)]
    probe = [sys.executable, "-c", PROBE, json.dumps([HEAVY, [table]])]
    first, second = (
        json.loads(subprocess.check_output(probe, text=True))[" ".join(table)] for _ in range(2)
    )
    assert "sacrebleu" in first  # which scores what is not scored yet
    assert "torch" not in first
    assert not set(second) - {"pandas", "numpy"}


def test_a_reader_of_one_line_gets_it(some_results, given):
    words = " ".join(f"'{word}'" for word in command("plan", *given, "--format", "json"))
    done = subprocess.run(
        f"{words} | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_the_launcher_leaves_torch_to_its_workers():
    probe = 'import sys, ablate.cli.live, ablate.launch.launch; print({"torch", "pandas"} & set(sys.modules))'
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
