"""The example of docs/own.md runs as it stands there."""

import re
from pathlib import Path

from tests.end_to_end.studies import ablate

PAGE = Path(__file__).parents[2] / "docs" / "own.md"


def runs(folder):
    """Each run's id, and whether it uses a class of one's own."""
    found = (folder / "results" / "runs").iterdir()
    return {run.name: (run / "sources").is_dir() for run in found}


def test_the_documented_class_of_ones_own_is_trained_and_an_edit_makes_a_new_run(tmp_path):
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (study,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    module = re.search(r"(\w+):[A-Z]\w+", study)[1]
    source = tmp_path / f"{module}.py"
    source.write_text(code)
    (tmp_path / "study.yaml").write_text(study)
    few = ("--set", "train_steps=3", "--results", str(tmp_path / "results"))
    ablate("run", tmp_path / "study.yaml", *few)
    first = runs(tmp_path)
    own = {id for id, uses_it in first.items() if uses_it}
    assert own
    assert own != first.keys()
    source.write_text(code + "\n# edited\n")
    ablate("run", tmp_path / "study.yaml", *few)
    assert len(runs(tmp_path)) == len(first) + len(own)
    assert all((tmp_path / "results" / "runs" / id / "result.json").exists() for id in runs(tmp_path))


def test_a_class_that_sees_the_future_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "cheat.py").write_text(
        "from ablate.model.mechanisms import Mechanism\n\n\nclass Cheat(Mechanism):\n"
        "    def forward(self, Q, K, V, sight):\n        return (Q @ K.transpose(-1, -2)).softmax(-1) @ V\n"
    )
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: cheat\ndata: {corpus: toy, vocab_size: 350}\n"
        "base: {N: 1, d_model: 8, d_ff: 8, h: 1, train_steps: 3, batch_tokens: 1024}\n"
        'rows: {own: {set: {attention: "cheat:Cheat"}}}\n'
    )
    done = ablate("run", study, "--results", tmp_path / "results", check=2)
    assert "cheat:Cheat: lets a token see those after it" in done.stderr
    assert "Traceback" not in done.stderr
