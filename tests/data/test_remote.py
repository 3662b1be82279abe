"""Test sets of sacreBLEU, read from its cache; nothing is downloaded."""

import pytest

from tests.data.apart import outcomes_of, start_preparing
from tests.data.small import PAIRS, SETTINGS


@pytest.fixture
def run(files, tmp_path):
    files.write()
    cache = {"SACREBLEU": str(tmp_path / "sacrebleu")}

    def run(test, direction="en-de", **environment):
        settings = {**SETTINGS, "test": test, "direction": direction}
        case = (settings, files.folder, files.corpora)
        (outcome,) = outcomes_of(start_preparing([case], **cache, **environment))
        return outcome

    return run


def test_a_test_set_is_read_from_sacrebleus_cache(run, tmp_path):
    folder = tmp_path / "sacrebleu" / "wmt14" / "full"
    folder.mkdir(parents=True)
    for name in ("src", "ref", "docid", "genre", "origlang"):
        side = {"src": 0, "ref": 1}.get(name, 0)
        text = "".join(f"{pair[side]}\n" for pair in PAIRS["test"])
        (folder / f"wmt14_full.en-de.{name}").write_text(text)
    outcome = run("sacrebleu:wmt14/full")
    assert outcome["texts"]["test.source"] == [source for source, _ in PAIRS["test"]]
    assert outcome["texts"]["test.target"] == [target for _, target in PAIRS["test"]]
    assert outcome["sources"]["test"]["test set"] == "sacrebleu:wmt14/full"


def test_offline_a_test_set_missing_from_the_cache_is_one_error_line(run):
    fault = ["sacrebleu:wmt14/full: is not in sacreBLEU's cache, and downloads are disabled"]
    assert run("sacrebleu:wmt14/full", HF_HUB_OFFLINE="1") == {"fault": fault}


def test_a_failed_download_is_one_error_line(run):
    proxies = dict.fromkeys(("https_proxy", "http_proxy"), "http://127.0.0.1:9")
    (line,) = run("sacrebleu:wmt14/full", **proxies)["fault"]
    assert line.startswith("sacrebleu:wmt14/full: sacreBLEU could not download it: ")


def test_a_direction_missing_from_a_test_set_is_an_error_with_the_available_ones(run, files):
    for split in PAIRS:
        (files.folder / f"{split}.xx").write_bytes((files.folder / f"{split}.de").read_bytes())
    (line,) = run("sacrebleu:wmt14/full", direction="en-xx")["fault"]
    assert line.startswith("sacrebleu:wmt14/full: has no direction en-xx: must be cs-en, de-en, ")
