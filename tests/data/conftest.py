import pytest

from tests.data.small import Files


@pytest.fixture
def files(tmp_path):
    """A corpus as files, written again for each test."""
    return Files(tmp_path / "files", tmp_path / "corpora")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A prepared corpus that tests must not modify."""
    folder = tmp_path_factory.mktemp("corpus")
    return Files(folder / "files", folder / "corpora").write().prepare()
