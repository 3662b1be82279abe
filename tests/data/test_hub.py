"""Downloads from the Hub with its library, against a local server: successes and failures."""

import hashlib
import json

import pytest

from tests.data.apart import outcomes_of, start_preparing
from tests.data.hub_server import COMMIT, FILES, LICENSE, Hub

SHA256 = hashlib.sha256(FILES["train.jsonl"].encode()).hexdigest()
SIZE = sum(len(text) for text in FILES.values())


@pytest.fixture(scope="module")
def hub():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def start(hub):
    """Start to prepare corpora of the Hub, one after another; `home` is the Hub's cache."""

    def start(cases, home, **environment):
        variables = {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), **environment}
        return start_preparing(cases, **variables)

    return start


@pytest.fixture(scope="module")
def run(start):
    return lambda *cases, **environment: outcomes_of(start(*cases, **environment))


def case(corpora, corpus, **settings):
    defaults = {"direction": "en-de", "vocab_size": 60}
    return {**defaults, "corpus": corpus, **settings}, "nowhere", corpora


FAULTS = {
    "missing": "hf:test/missing@main: train.jsonl: the Hub does not have this file",
    "hash": f"hf:test/hash@main: train.jsonl has the SHA-256 hash {SHA256}"
    f", expected {'0' * 64}; it was removed; run again to download it",
    "nothing": "hf:test/nothing@main: the Hub has no such data set, or it is private; `hf auth login` gives access to yours",
    "gated": "hf:test/gated@main: requires a login: accept its terms on the Hub, then run `hf auth login`",
    "served@nowhere": "hf:test/served@nowhere: the data set has no such revision",
    "script": "hf:test/script@main: consists of a Python script, which ablate does not execute; try its "
    "revision refs/convert/parquet",
    "busy": "hf:test/busy@main: train.jsonl: the Hub answered 500; run again later",
}  # fmt: skip
GOOD = ("served", "redirected", "cut", "small")


@pytest.fixture(scope="module")
def outcomes(run, tmp_path_factory):
    """The outcome of preparing from each repository."""
    folder = tmp_path_factory.mktemp("hub")
    names = [*GOOD, *FAULTS, "truncated"]
    found = run(
        [case(folder / "corpora" / name, f"hf:test/{name}") for name in names], folder / "home"
    )
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", GOOD)
def test_redirects_and_interrupted_downloads_give_the_same_corpus(outcomes, name):
    assert outcomes[name]["records"] == {"train": 3000, "dev": 20, "test": 20}
    assert outcomes[name]["id"] == outcomes["served"]["id"]


def test_an_interrupted_download_is_resumed(outcomes, hub):
    assert (
        SIZE <= hub.sent["test/cut"] <= SIZE + len(FILES) * 4096
    )  # a block that was not yet on disk is sent again


def test_size_and_license_are_logged_before_a_download(outcomes):
    megabytes = len(FILES["train.jsonl"]) / 1e6
    line = f"downloading 1 file of hf:test/served@main, {megabytes:,.1f} MB, license: {LICENSE}"
    assert line in outcomes["served"]["said"]


@pytest.mark.parametrize("name", list(FAULTS))
def test_each_failure_is_one_line_with_the_remedy(outcomes, name):
    assert outcomes[name] == {"fault": [FAULTS[name]]}


def test_a_connection_that_always_breaks_is_an_error_after_retries(outcomes):
    (line,) = outcomes["truncated"]["fault"]
    assert line.startswith("hf:test/truncated@main: train.jsonl: the download was interrupted (")
    assert line.endswith("run again to resume it")


def test_the_same_text_from_the_hub_and_from_files_is_one_corpus(outcomes, run, tmp_path):
    for name, text in FILES.items():
        pairs = [json.loads(line) for line in text.splitlines()]
        for language in ("en", "de"):
            path = tmp_path / f"{name.removesuffix('.jsonl')}.{language}"
            path.write_text("".join(f"{pair[language]}\n" for pair in pairs))
    files = {"train": "train", "dev": "validation", "test": "test", "folder": str(tmp_path)}
    script = case(
        tmp_path / "corpora",
        "files",
        **{name: str(tmp_path / files[name]) for name in ("train", "dev", "test")},
    )
    (found,) = run([script], tmp_path / "home")
    assert found["id"] == outcomes["served"]["id"]


def test_a_revision_is_requested_once_and_a_branch_keeps_its_first_commit(run, hub, tmp_path):
    served = case(tmp_path / "corpora", "hf:test/served")
    (first,) = run([served], tmp_path / "home")
    (record,) = (tmp_path / "corpora/downloads").glob("*.json")
    assert json.loads(record.read_text())["commit"] == COMMIT
    before = hub.requests.copy()
    other = case(
        tmp_path / "corpora", "hf:test/served", vocab_size=61
    )  # another corpus from the same files
    again, prepared_anew = run([served, other], tmp_path / "home")
    assert again["id"] == first["id"] != prepared_anew["id"]
    assert hub.requests == before


def test_offline_uses_cached_files_and_names_missing_ones(run, hub, tmp_path):
    served = case(tmp_path / "corpora", "hf:test/served")
    offline = "and downloads are disabled (--offline or HF_HUB_OFFLINE)"
    (fault,) = run([served], tmp_path / "home", HF_HUB_OFFLINE="1")
    assert fault == {"fault": [f"hf:test/served@main: is not in the Hub's cache, {offline}"]}
    (first,) = run([served], tmp_path / "home")
    before = hub.requests.copy()
    (again,) = run([served], tmp_path / "home", HF_HUB_OFFLINE="1")
    assert again["id"] == first["id"]
    assert hub.requests == before


def test_an_unreachable_hub_is_one_error_line(run, tmp_path):
    (found,) = run(
        [case(tmp_path / "corpora", "hf:test/served")],
        tmp_path / "home",
        HF_ENDPOINT="http://127.0.0.1:9",
    )
    (line,) = found["fault"]
    assert line.startswith("hf:test/served@main: the ")


def test_several_processes_at_once_download_each_file_once(start, hub, tmp_path):
    """The processes share the Hub's cache but not the prepared corpora, so that only the cache's
    locks act.
    """
    before = hub.sent["test/small"]
    cases = [case(tmp_path / str(i), "hf:test/small") for i in range(3)]
    processes = [start([alone], tmp_path / "home") for alone in cases]
    found = [outcomes_of(process)[0] for process in processes]
    assert len({outcome["id"] for outcome in found}) == 1
    assert hub.sent["test/small"] - before == SIZE
