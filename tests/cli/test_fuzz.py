"""Every command with odd values of every argument and option: one line for each error, and never a
traceback.

The values are drawn with a fixed seed. The study's files are missing, so that nothing is trained.
"""

import os
import random
import shutil

import pytest

from ablate.store.files import write_bytes
from tests.cli.inside import inside
from tests.commands import commands as every_command
from tests.report.fakes import Fake, study_from

STUDY = """\
study: small
data: {corpus: files, direction: en-de, train: train, dev: dev, test: test, vocab_size: 200, folder: nowhere}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: [1, 2]
rows: {A: {each: {h: [1, 2]}}}
"""
ODD = (
    "", " ", "\0", "a\0b", "~nosuchuser/x", "x" * 5000, "/", ".", "..", "/dev/null", "/dev/full", "/proc/self/mem",
    "s3://a/b", "reference://x", "-", "\udcff", "\x1b[31m", "\u202e", "1e999", "-1", "9" * 30, "nan", "inf", "1", "0",
    "[", "{}", "[[[[", "a=b", "=", "data.x=1", "data.folder=~nosuchuser/x", "data.train=\0", "h=[", "h=3", "h=\0",
    "*", "[a", "base", "A h=1", "é", "%s", "{0}", ":Zero", "1-999999999", "1,1", "1-", "2h", "FOLDER", "STUDY",
    "STUDY/x", "RESULT", "LOOP", "FIFOLESS.png", "x.png", "x/y/z.svg",
)  # fmt: skip
LEFT_OUT = ("cluster", "work")  # which act on jobs of a cluster
TRIALS = 6  # values of each parameter


def commands():
    """Each command with its parameters, by the words that call it."""
    for name, command in every_command().items():
        words = tuple(name.split())
        if words[0] not in LEFT_OUT:
            yield words, command.params


CASES = [
    pytest.param(words, parameter, id=f"{' '.join(words)} {parameter.opts[0]}")
    for words, parameters in commands()
    for parameter in parameters
    if not getattr(parameter, "is_flag", False)
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A study with results, and what paths may lead to."""
    folder = tmp_path_factory.mktemp("fuzz")
    fake = Fake(folder / "results", study_from(folder, STUDY))
    fake.all_done()
    (folder / "loop").symlink_to("loop")
    write_bytes(folder / "result.json", b"[" * 100_000)
    shutil.copytree(folder / "results", folder / "kept", symlinks=True)
    return folder, fake.folder("base", 1).id


@pytest.fixture
def here(prepared, monkeypatch):
    folder, run = prepared
    monkeypatch.chdir(folder)
    yield folder, run
    for entry in folder.iterdir():  # a command may write where an odd value says
        if entry.name not in ("results", "kept", "study.yaml", "loop", "result.json"):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def valid(parameter, run):
    """A value for an argument that is not the odd one."""
    return {
        "run": run, "study": "study.yaml", "first": "base", "second": "A h=1",
        "to": "huggingface",
    }.get(parameter.name, "out")  # fmt: skip


@pytest.mark.parametrize(("words", "odd"), CASES)
def test_an_odd_value_is_refused_in_one_line_or_used(here, words, odd):
    folder, run = here
    draw = random.Random(f"{words} {odd.name}")
    parameters = dict(commands())[words]
    for value in draw.sample(ODD, TRIALS):
        names = {
            "FOLDER": folder,
            "STUDY": "study.yaml",
            "STUDY/x": "study.yaml/x",
            "RESULT": "result.json",
        }
        value = str({**names, "LOOP": "loop"}.get(value, value))
        arguments = []
        for parameter in parameters:
            if parameter is odd and parameter.param_type_name == "option":
                arguments += [f"{parameter.opts[0]}={value}"]
            elif parameter is odd or (
                parameter.param_type_name == "argument" and parameter.required
            ):
                arguments.append(value if parameter is odd else valid(parameter, run))
            elif parameter.required:
                arguments += [parameter.opts[0], valid(parameter, run)]
        done = inside(*words, *arguments, stdin=b"a dog\n")  # an uncaught exception fails the test
        assert done.code in (0, 2, 3, 4), (arguments, done)
        lines = done.err.splitlines()
        assert all(line.isprintable() and len(line) < 8000 for line in lines), (arguments, lines)
        assert done.code == 0 or lines, arguments
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "name", ["ABLATE_CORPORA", "ABLATE_CLUSTERS", "ABLATE_LOG", "XDG_CONFIG_HOME", "COLUMNS"]
)
@pytest.mark.parametrize(
    "value", ["~nosuchuser/x", "/dev/null/x", "x" * 5000, "\x1b[31m", "-1", " "]
)
def test_an_odd_variable_is_refused_in_one_line_or_used(here, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    for words in (
        ["table", "study.yaml"],
        ["plan", "study.yaml", "--on", "nowhere"],
        ["run", "study.yaml"],
    ):
        done = inside(*words)
        assert done.code in (0, 2, 3, 4)
        assert all(line.isprintable() for line in done.err.splitlines())
        assert done.code == 0 or done.err


PATHS = ["~nosuchuser/t", "reference://x", "s3://a/b", "gopher://a/b", "dir://x", "github://a", "tar://x", "://",
         "/proc/1/root", "x" * 300, "/dev/null", "study.yaml/x", "a\\0b", "loop", "\\u202e\\e[2J"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("field", ["train", "dev", "folder"])
@pytest.mark.parametrize("task", ["translation", "language-model"])
def test_an_odd_path_of_a_study_is_one_line(here, field, path, task):
    settings = {
        "corpus": "files", "train": "train", "dev": "dev", "test": "test", "vocab_size": "200",
    }  # fmt: skip
    settings |= {"direction": "en-de"} if task == "translation" else {}
    text = ", ".join(f"{name}: {value}" for name, value in settings.items() if name != field)
    (here[0] / "odd.yaml").write_text(
        f'study: odd\ntask: {task}\ndata: {{{text}, {field}: "{path}"}}\n'
    )
    done = inside("data", "prepare", "odd.yaml", "--results", "new")
    assert (done.code in (2, 3), done.out) == (True, "")
    assert all(line.isprintable() for line in done.err.splitlines())
    assert not os.path.lexists("new/runs")


def test_a_deeply_nested_line_of_json_is_one_line(here):
    (here[0] / "deep.jsonl").write_text("[" * 200_000)
    text = (
        "study: deep\ndata: {corpus: files, direction: en-de, train: deep.jsonl, dev: deep.jsonl, "
        "test: deep.jsonl}\n"
    )
    (here[0] / "deep.yaml").write_text(text)
    done = inside("data", "prepare", "deep.yaml", "--results", "new")
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[-1].startswith("deep.yaml:2:7: data: deep.jsonl:1: is not JSON: ")
