"""Plug-in classes from a study to its translations; the example of docs/components.md runs
unchanged.
"""

import itertools
import re
import shutil
from pathlib import Path

import pytest
import torch

from ablate.errors import Interrupted
from ablate.training import RunHooks
from ablate.workers.pipeline import execute
from tests.cli.inside import inside
from tests.trained import Trained

PAGE = Path(__file__).parents[2] / "docs" / "components.md"


def runs(folder):
    """The id of each run, and whether it uses a plug-in."""
    found = (folder / "results" / "runs").iterdir()
    return {run.name: (run / "sources").is_dir() for run in found}


def test_the_documented_plugin_is_trained_and_an_edit_makes_a_new_run(tmp_path):
    text = PAGE.read_text()
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (study,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    module = re.search(r"(\w+):[A-Z]\w+", study)[1]
    source = tmp_path / f"{module}.py"
    source.write_text(code)
    (tmp_path / "study.yaml").write_text(study)
    short = ("--set", "train_steps=3", "--set", "beam=1", "--set", "max_extra_length=5")
    few = (*short, "--results", str(tmp_path / "results"))
    assert inside("run", tmp_path / "study.yaml", *few).code == 0
    first = runs(tmp_path)
    own = {id for id, uses_it in first.items() if uses_it}
    assert own
    assert own != first.keys()
    source.write_text(code + "\n# edited\n")
    assert inside("run", tmp_path / "study.yaml", *few).code == 0
    assert len(runs(tmp_path)) == len(first) + len(own)
    assert all(
        (tmp_path / "results" / "runs" / id / "result.json").exists() for id in runs(tmp_path)
    )


def test_plan_names_custom_classes_and_executes_none_and_run_names_them_once(tmp_path):
    executed = tmp_path / "executed"
    (tmp_path / "mine.py").write_text(
        f"open({str(executed)!r}, 'w').close()\nclass A: pass\nclass B: pass\n"
    )
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: two\ndata: {corpus: toy, vocab_size: 350}\nbase: {N: 1, d_model: 8, d_ff: 8, h: 1, "
        "train_steps: 3}\n"
        'rows: {a: {set: {attention: "mine:A"}}, b: {each: {norm: ["mine:B"], h: [2]}}}\n'
    )
    for verb, code in (("plan", 0), ("status", 0), ("table", 2)):  # there is no result to show
        done = inside(verb, study, "--results", tmp_path / "results")
        assert done.code == code, done.err
        named = (
            "Custom classes, which `ablate run` executes: mine:A (mine.py), mine:B (mine.py)."
            in done.out
        )
        assert named == (verb == "plan")
        assert not executed.exists()
    done = inside("run", study, "--results", tmp_path / "results")
    assert done.code == 2
    assert executed.exists()
    assert done.err.count("mine:A (") == done.err.count("mine:B (") == 1
    assert done.err.startswith("Executing the custom classes of the study: mine:A (")


def test_a_plugin_that_is_incompatible_with_one_row_is_refused_before_training(tmp_path):
    (tmp_path / "plain.py").write_text(
        "from ablate.components import FullAttention\n\n\nclass Plain(FullAttention):\n    "
        "supports_bias = False\n"
    )
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: plain\ndata: {corpus: toy, vocab_size: 350}\n"
        "base: {N: 1, d_model: 8, d_ff: 8, h: 1, train_steps: 3, batch_tokens: 1024, attention: "
        '"plain:Plain"}\n'
        "rows: {A: {each: {positional_encoding: [none, t5]}}}\n"
    )
    done = inside("run", study, "--results", tmp_path / "results")
    assert done.code == 2
    *progress, _ = done.err.splitlines()
    assert all(line.startswith(("corpus: ", "Executing the custom classes")) for line in progress)
    assert (
        "adds no bias to its scores (supports_bias is False), which positional_encoding=t5 needs"
        in done.err
    )
    assert not list(tmp_path.glob("results/runs/*/metrics.jsonl"))


FAULTY = """\
from torch import nn

from ablate.components import FullAttention


class Mean(nn.Module):
    def __init__(self, d_model):
        super().__init__()

    def forward(self, x):
        return x - x.mean(1, keepdim=True)


class Fine(nn.Module):
    def __init__(self, d_model):
        super().__init__()

    def forward(self, x):
        return x - x.mean(-1, keepdim=True)


class Silent(FullAttention):
    def forward(self, Q, K, V, context):
        super().forward(Q, K, V, context)


def percent(config, step, last):
    return 100 * (1 - step / last)
"""


def test_the_first_fault_of_each_class_is_listed_in_one_go(tmp_path):
    """Faults of a row's classes in different places, of classes in other rows, and of a class in
    two rows.
    """
    (tmp_path / "own.py").write_text(FAULTY)
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: faulty\ndata: {corpus: toy, vocab_size: 350}\n"
        "base: {N: 1, d_model: 8, d_ff: 8, h: 1, train_steps: 30, warmup_steps: 2}\n"
        'rows: {a: {set: {norm: "own:Fine"}}, b: {set: {norm: "own:Mean", attention: "own:Silent", '
        'schedule: "own:percent"}}, c: {each: {norm: ["own:Mean"], d_ff: [16]}}}\n'
    )
    done = inside("run", study, "--results", tmp_path / "results")
    assert done.code == 2
    faults = [line for line in done.err.splitlines() if line.startswith("own.py:")]
    assert faults == [
        "own.py:23: own:Silent: forward returns NoneType, not a tensor; is a return missing?",
        "own.py:6: own:Mean: lets a token depend on later ones; each token must be treated alone",
        "own.py:27: own:percent: returns 93.3333 at step 2: return a share of the peak "
        "learning_rate, such as 1.0",
    ]
    assert not list(tmp_path.glob("results/runs/*/metrics.jsonl"))


OWN = """\
study: own
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 20, batch_tokens: 512, warmup_steps: 20, eval_every: 10,
       checkpoint_every: 10, beam: 1, max_extra_length: 5, attention: "mine:Mine", norm: "mine:Centred"}
"""
MINE = """\
import torch
from torch import nn

from ablate.components import FullAttention


class Mine(FullAttention):
    def __init__(self, config):
        super().__init__(config)
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, Q, K, V, context):
        return super().forward(self.gain * Q, K, V, context)


class Centred(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return self.gain * (x - x.mean(-1, keepdim=True))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A study with plug-ins, trained without interruption."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(MINE)
    (folder / "own.yaml").write_text(OWN)
    trained = Trained(folder / "own.yaml", folder / "results")
    done = trained.run()
    assert done.code == 0, done.err
    return trained


@pytest.fixture
def copied(own, tmp_path):
    """A copy of the study, with the plug-in's source."""
    shutil.copytree(own.file.parent, tmp_path, dirs_exist_ok=True)
    return Trained(tmp_path / "own.yaml", tmp_path / "results")


def begun(trained, steps):
    """Undo the end of its run, and begin it again for `steps` steps."""
    run = trained.folder("base")
    run.result.unlink()
    shutil.rmtree(run.checkpoints)
    asked, threads = itertools.count(1), torch.get_num_threads()
    hooks = RunHooks(stop_requested=lambda: next(asked) == steps)
    try:
        with pytest.raises(Interrupted):
            execute(trained.assignment("base"), hooks)
    finally:
        torch.set_num_threads(threads)


def test_an_interrupted_run_resumes_with_the_plugin_source_that_it_began_with(own, copied):
    """The edited class makes another run; undoing the edit finds the first one again."""
    begun(copied, steps=13)
    source = copied.file.parent / "mine.py"
    source.write_text(MINE.replace("torch.tensor(1.0)", "torch.tensor(2.0)"))
    old = {path.name for path in copied.root.glob("runs/*")}
    assert copied.run().code == 0
    assert len({path.name for path in copied.root.glob("runs/*")} - old) == 1
    source.write_text(MINE)
    assert copied.run().code == 0
    weights = "runs/*/checkpoints/*20.weights.safetensors"
    (calm,) = own.root.glob(weights)
    assert (copied.root / calm.relative_to(own.root)).read_bytes() == calm.read_bytes()
    assert len({path.read_bytes() for path in copied.root.glob(weights)}) == 2


def test_a_run_translates_with_its_copy_of_the_plugin_after_the_original_is_gone(copied):
    run = copied.folder("base")
    (kept,) = run.sources.iterdir()
    assert kept.read_text() == MINE
    corpus = next(copied.root.glob("corpora/*/test.source.txt")).read_text().splitlines()[:5]
    words, text = (
        ("predict", run.id, "--results", copied.root, "--beam", "1"),
        "\n".join(corpus).encode(),
    )
    before = inside(*words, stdin=text)
    assert any(before.out.splitlines())
    (copied.file.parent / "mine.py").unlink()
    assert inside(*words, stdin=text) == before
    assert (before.code, len(before.out.splitlines())) == (0, len(corpus))

    kept.write_text(MINE + "# changed\n")
    refused = inside(*words, stdin=b"a\n")
    assert f"{kept}: is not the source of mine:Mine; remove the run" in refused.refusal
