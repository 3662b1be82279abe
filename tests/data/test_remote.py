"""Test sets of sacreBLEU, read from its cache; nothing is downloaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.small import PAIRS, SETTINGS

ROOT = Path(__file__).parents[2]
# In a separate process, since sacreBLEU reads the path of its cache when it is imported.
SCRIPT = """
import json, sys
from pathlib import Path
from ablate.config.translation_data import TranslationData
from ablate.data.prepare import prepare
from ablate.errors import DataError
settings, folder, corpora = json.loads(sys.argv[1])
try:
    corpus = prepare(TranslationData.resolve(settings), Path(folder), Path(corpora))
    texts = [corpus.text("test", field) for field in corpus.fields]
    print(json.dumps([*texts, corpus.manifest.sources["test"].model_dump(mode="json")]))
except DataError as error:
    print(json.dumps(list(error.lines)))
"""


@pytest.fixture
def run(files, tmp_path):
    files.write()

    def run(test, direction="en-de", **environment):
        given = json.dumps(
            [
                {**SETTINGS, "test": test, "direction": direction},
                str(files.folder),
                str(files.corpora),
            ]
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT, given], cwd=ROOT, text=True, capture_output=True, check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "0", "SACREBLEU": str(tmp_path / "sacrebleu"), **environment},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_test_set_is_read_from_sacrebleus_cache(run, tmp_path):
    folder = tmp_path / "sacrebleu" / "wmt14" / "full"
    folder.mkdir(parents=True)
    for name in ("src", "ref", "docid", "genre", "origlang"):
        side = {"src": 0, "ref": 1}.get(name, 0)
        text = "".join(f"{pair[side]}\n" for pair in PAIRS["test"])
        (folder / f"wmt14_full.en-de.{name}").write_text(text)
    sources, references, about = run("sacrebleu:wmt14/full")
    assert sources == [source for source, _ in PAIRS["test"]]
    assert references == [target for _, target in PAIRS["test"]]
    assert about["test set"] == "sacrebleu:wmt14/full"


def test_offline_a_test_set_missing_from_the_cache_is_one_error_line(run):
    fault = ["sacrebleu:wmt14/full: is not in sacreBLEU's cache, and downloads are disabled"]
    assert run("sacrebleu:wmt14/full", HF_HUB_OFFLINE="1") == fault


def test_a_failed_download_is_one_error_line(run):
    (line,) = run(
        "sacrebleu:wmt14/full", https_proxy="http://127.0.0.1:9", http_proxy="http://127.0.0.1:9"
    )
    assert line.startswith("sacrebleu:wmt14/full: sacreBLEU could not download it: ")


def test_a_direction_missing_from_a_test_set_is_an_error_with_the_available_ones(run, files):
    for split in PAIRS:
        (files.folder / f"{split}.xx").write_bytes((files.folder / f"{split}.de").read_bytes())
    (line,) = run("sacrebleu:wmt14/full", direction="en-xx")
    assert line.startswith("sacrebleu:wmt14/full: has no direction en-xx: must be cs-en, de-en, ")
