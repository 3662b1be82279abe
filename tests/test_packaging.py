"""What is installed, cited and shown besides the code."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import ablate
from docs import pictures

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]


def test_a_wheel_has_the_files_that_are_no_code(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "ablate", tmp_path / "ablate", ignore=no_caches)
    code = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    names = set(zipfile.ZipFile(tmp_path / built.stdout.split()[-1]).namelist())
    files = [file for file in (ROOT / "ablate").rglob("*") if file.is_file()]
    content = {str(file.relative_to(ROOT)) for file in files if file.suffix != ".pyc"}
    assert "ablate/py.typed" in content
    assert content - names == set()


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == ablate.__version__


def test_the_public_workflow_runs_the_test_command_of_the_readme():
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    steps = [step.get("run", "") for step in workflow["jobs"]["tests"]["steps"]]
    assert sum("grep -F pytest README.md" in step for step in steps) == 1
    lines = (ROOT / "README.md").read_text().splitlines()
    assert sum(line.startswith("python3 -m venv") and "pytest" in line for line in lines) == 1


# The name `ablate` on the package index is another project's, and this one is not there yet.
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_from_the_index_by_name(page):
    commands = re.findall(r"pip install ([^\n`]+)", page.read_text())
    assert [words for words in commands if re.match(r"'?ablate\b", words)] == []


@pytest.mark.parametrize("picture", pictures.SHOWN)
def test_a_picture_is_of_the_results_that_it_shows(picture):
    path = ROOT / "docs" / picture
    assert pictures.stored_hash(path) == pictures.hash_of(picture), "python -m docs.pictures"
