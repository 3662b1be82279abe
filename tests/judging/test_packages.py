"""`ablate judge` in an environment with the packages that docs/judge.md names, and no torch."""

import json
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "judge.md").read_text()
NAMED = ("numpy", "pydantic", "typer", "rich")
# Runs the command where no package can be imported but these and those that they need.
ALONE = """
import importlib.metadata, re, sys
from importlib.abc import MetaPathFinder

def key(name):
    return name.lower().replace("-", "_")

def needed(names):
    packages = set()
    while names:
        name = names.pop()
        if key(name) not in packages:
            packages.add(key(name))
            for line in importlib.metadata.requires(name) or []:
                if "extra ==" not in line:
                    names.add(re.match(r"[\\w.-]+", line)[0])
    return packages

packages = needed(set(sys.argv.pop(1).split(",")))
owners = importlib.metadata.packages_distributions()

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "ablate" and top in owners and packages.isdisjoint(map(key, owners[top])):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
from ablate.cli import main
main()
"""


def judge(file, packages, *words):
    command = [sys.executable, "-c", ALONE, ",".join(packages), "judge", file, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_needs_the_packages_that_the_page_names_and_no_other(tmp_path):
    assert f"pip install {' '.join(NAMED)}\n" in PAGE
    lines = ["row,seed,bleu"]
    for row, bleu in (("base", 20), ("A", 30)):
        for seed in (1, 2, 3):
            lines.append(f"{row},{seed},{bleu + seed % 2}")
    file = tmp_path / "scores.csv"
    file.write_text("\n".join(lines) + "\n")
    for form in ("text", "markdown", "latex", "json"):
        done = judge(file, NAMED, "--format", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert "20.7" in done.stdout or json.loads(done.stdout)["rows"]
    for package in ("numpy", "typer"):  # typer needs rich
        fewer = [name for name in NAMED if name != package]
        assert "No module named" in judge(file, fewer).stderr
