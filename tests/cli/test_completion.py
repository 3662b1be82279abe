"""Shell completion, requested as a shell does."""

import os
import subprocess
import sys

from tests.cli.test_start import VERBS


def completed(monkeypatch, words, shell="bash"):
    """The completions that a shell gets when Tab is pressed after these words."""
    environment = {
        **os.environ,
        "_ABLATE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
    }
    script = [sys.executable, "-m", "ablate"]
    return subprocess.run(
        script, env=environment, capture_output=True, text=True, check=False
    ).stdout.split()


def test_a_shell_completes_verbs_and_options(monkeypatch):
    assert completed(monkeypatch, "ablate pl") == ["plan"]
    assert set(VERBS) <= set(completed(monkeypatch, "ablate "))
    assert completed(monkeypatch, "ablate run study.yaml --bud") == ["--budget"]
    assert completed(monkeypatch, "ablate init --template own") == ["own-data"]
