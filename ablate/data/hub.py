"""Data sets of the Hugging Face Hub: the files of a revision, downloaded once and verified.

The Hub's library keeps files in its cache (HF_HOME), resumes interrupted downloads, and lets one
process at a time download a file. The commit and the files of a revision are recorded beside the
prepared corpora: a branch then always means the same commit, and the network is not used again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ablate.config.catalogue import HubData
from ablate.data.io import suffix_of
from ablate.data.readers import SUFFIXES
from ablate.errors import DataError, listed, unknown_name
from ablate.formatting import first_line, plural, type_and_line
from ablate.store.records import HubFile, HubRevision

_COMMIT = re.compile(r"[0-9a-f]{40}")
_LIBRARIES = ("httpx", "huggingface_hub")  # their other errors mean a broken connection
DOWNLOADS = "downloads"  # subfolder of the corpora: commit and files of each revision

Log = Callable[[str], None]


class Repository:
    """A data set of the Hub at one revision."""

    def __init__(self, data: HubData, records: Path, log: Log) -> None:
        """Name a revision, without using the network; `records` is the folder of its record."""
        self.name = data.repository
        self.revision = data.revision
        self.known = data.sha256
        self.display_name = data.display_name
        self.log = log
        name = f"{data.repository}@{data.revision}".replace("/", "--")
        self.record_file = records / f"{name}.json"

    def record(self) -> HubRevision:
        """The commit, the stated license, and sizes and hashes of the files, requested once.

        Raises:
            DataError: the Hub does not have the revision, or cannot be reached.
        """
        recorded = HubRevision.read(self.record_file)
        if recorded is None:
            recorded = self._request()
            recorded.write(self.record_file)
        return recorded

    def files(self, prefix: str) -> list[str]:
        """The files of a split, such as train-00000-of-00003.parquet for the prefix `train`.

        Raises:
            DataError: no file in a readable format has this prefix.
        """
        names = self.record().files
        # The Hub's own layouts: `train.parquet`, `data/train-00000-of-00003.parquet`,
        # `train/0000.parquet`.
        pattern = re.compile(rf"(?:data/)?{re.escape(prefix)}(?:[-./][^/]*|/.*)?")
        readable = [name for name in names if suffix_of(name) in SUFFIXES]
        matches = [name for name in readable if pattern.fullmatch(_stem(name))]
        if matches:
            return sorted(matches)
        if not readable:
            why = f"holds no file that ends in {listed(SUFFIXES)}"
            if any(name.endswith(".py") for name in names):
                # The revision with the Parquet files into which the Hub converts such data sets.
                remedy = "try its revision refs/convert/parquet"
                why = f"consists of a Python script, which ablate does not execute; {remedy}"
            raise DataError(f"{self.display_name}: {why}")
        stems = sorted(set(map(_stem, readable)))
        raise DataError(unknown_name("split", prefix, stems).about(self.display_name))

    def download(self, files: list[str]) -> list[str]:
        """Paths of files in the Hub's cache. Missing files are downloaded, and all verified once.

        Raises:
            DataError: the Hub cannot be reached, or a file is missing or has another hash.
        """
        record = self.record()
        missing = [file for file in files if not self._is_cached(file, record.commit)]
        if missing:
            size = sum(record.files[file].size or 0 for file in missing) / 1e6
            license = record.licence or "none stated"
            self.log(
                f"downloading {plural(len(missing), 'file')} of {self.display_name}, {size:,.1f} "
                f"MB, license: {license}"
            )
        return list(map(self._download, files))

    def _download(self, file: str) -> str:
        from huggingface_hub import hf_hub_download

        record = self.record()
        about = record.files[file]
        commit = record.commit
        with self._translate_errors(file):
            path = Path(hf_hub_download(self.name, file, repo_type="dataset", revision=commit))
        stamp = (path.stat().st_size, path.stat().st_mtime_ns)
        if about.verified == stamp:  # unchanged since it was verified
            return str(path)
        # Large files have a SHA-256 on the Hub, small files only a git blob hash.
        known = ("SHA-256", self.known.get(file))
        for algorithm, expected in (known, ("SHA-256", about.sha256), ("git", about.git)):
            if expected and (digest := _digest(path, algorithm)) != expected:
                # Both the blob and the link to it, or else the library would find the file again.
                path.resolve().unlink()
                path.unlink(missing_ok=True)
                raise DataError(
                    f"{self.display_name}: {file} has the {algorithm} hash {digest}, expected "
                    f"{expected}; it was removed; run again to download it"
                )
        files = {**record.files, file: about.model_copy(update={"verified": stamp})}
        record.model_copy(update={"files": files}).write(self.record_file)
        return str(path)

    def _is_cached(self, file: str, commit: str) -> bool:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(self.name, file, repo_type="dataset", revision=commit)
        return isinstance(cached, str)

    def _request(self) -> HubRevision:
        from huggingface_hub import HfApi

        with self._translate_errors(None):
            info = HfApi().dataset_info(self.name, revision=self.revision, files_metadata=True)
        # Without a commit, the files of a branch could change between two downloads.
        if not info.sha or not _COMMIT.fullmatch(info.sha):
            raise DataError(f"{self.display_name}: the Hub returned no commit for this revision")
        license = getattr(info.card_data, "license", None)
        files = {}
        for sibling in info.siblings or ():
            hashes = {"sha256": None, "git": sibling.blob_id}
            if sibling.lfs:
                hashes = {"sha256": sibling.lfs.sha256, "git": None}
            files[sibling.rfilename] = HubFile(size=sibling.size, **hashes)
        return HubRevision(
            repository=self.name,
            revision=self.revision,
            commit=info.sha,
            licence=", ".join(license) if isinstance(license, list) else license,
            files=files,
        )

    @contextmanager
    def _translate_errors(self, file: str | None) -> Iterator[None]:
        """Context in which errors of the Hub's library become a DataError.

        Raises:
            DataError: one line with the remedy.
        """
        subject = self.display_name
        if file is not None:
            subject += f": {file}"
        try:
            yield
        except Exception as error:
            message = _message(error)
            if message is None:
                raise
            raise DataError(f"{subject}: {message}") from None


def _message(error: Exception) -> str | None:
    """The fault of the Hub or of the connection, with its remedy; None for any other error."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return "requires a login: accept its terms on the Hub, then run `hf auth login`"
        case errors.RepositoryNotFoundError():
            login = "`hf auth login` gives access to yours"
            return f"the Hub has no such data set, or it is private; {login}"
        case errors.RevisionNotFoundError():
            return "the data set has no such revision"
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError():
            return _unreachable(error)
        case errors.EntryNotFoundError():
            return "the Hub does not have this file"
        case errors.HfHubHTTPError():
            return _http_status(error)
        case errors.HFValidationError():
            return first_line(error)
    # A broken connection raises an error of httpx, or an OSError without a number. An OSError with
    # a number is a fault of this machine: a full disk, a folder without permission.
    may_be_connection = isinstance(error, OSError) or type(error).__module__.startswith(_LIBRARIES)
    if not may_be_connection or getattr(error, "errno", None) is not None:
        return None
    return f"the download was interrupted ({type_and_line(error)}); run again to resume it"


def _http_status(error: Any) -> str:
    return f"the Hub answered {error.response.status_code}; run again later"


def _unreachable(error: Exception) -> str:
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error.__cause__, HfHubHTTPError):
        return _http_status(error.__cause__)
    if HF_HUB_OFFLINE:
        return "is not in the Hub's cache, and downloads are disabled (--offline or HF_HUB_OFFLINE)"
    return f"the Hub cannot be reached ({type_and_line(error.__cause__ or error)})"


def _stem(file: str) -> str:
    """A file's path without the suffix of its format."""
    return file.removesuffix(".gz").rpartition(".")[0]


def _digest(path: Path, algorithm: str) -> str:
    """SHA-256 of a file, or its git blob hash."""
    digest = hashlib.sha256()
    if algorithm == "git":
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: digest).hexdigest()
