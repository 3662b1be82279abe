"""Files that are whole or absent, whatever fails or is killed while they are written."""

import errno
import hashlib
import math
import os
import random
import signal
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.errors import Damaged, StoreError
from ablate.store import files
from ablate.store.files import (
    quarantine,
    read_json,
    remove,
    remove_temporaries,
    sha256,
    sync_file,
    sync_folder,
    verify,
    write_bytes,
    write_json,
)

ROOT = Path(__file__).parents[2]
FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


class Failing:
    """Lets calls through until the n-th, which fails."""

    def __init__(self, call, n, error):
        self.call, self.left, self.error = call, n, error

    def __call__(self, *given, **named):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.call(*given, **named)

    def __get__(self, owner, kind=None):  # stands for a method too
        return lambda *given, **named: self(owner, *given, **named)


def test_a_file_is_replaced_and_no_temporary_file_remains(tmp_path):
    for content in (b"old", b"new", b""):
        write_bytes(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "error", [FULL, BROKEN, KeyboardInterrupt()], ids=["full", "broken", "interrupted"]
)
@pytest.mark.parametrize(
    ("owner", "name", "n"),
    [(Path, "open", 1), (os, "fsync", 1), (Path, "replace", 1)],
    ids=["open", "flush", "rename"],
)
def test_a_failure_before_the_rename_leaves_the_old_content(
    tmp_path, monkeypatch, owner, name, n, error
):
    write_bytes(tmp_path / "file", b"old")
    monkeypatch.setattr(owner, name, Failing(getattr(owner, name), n, error))
    with pytest.raises(type(error)):
        write_bytes(tmp_path / "file", b"new")
    monkeypatch.undo()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_content(tmp_path, monkeypatch):
    write_bytes(tmp_path / "file", b"old")
    write, room = os.write, iter([1, 1])

    def write_while_there_is_room(file, content):
        if next(room, None) is None:
            raise FULL
        return write(file, content[:1])

    monkeypatch.setattr(os, "write", write_while_there_is_room)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "file", b"new")
    monkeypatch.undo()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failure_after_the_rename_leaves_the_new_content_whole(tmp_path, monkeypatch):
    write_bytes(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", Failing(os.fsync, 2, BROKEN))
    with pytest.raises(OSError, match="Input/output"):
        write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_the_content_is_on_the_disk_before_it_takes_its_name_and_the_name_after(
    tmp_path, monkeypatch
):
    done = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(file):
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "content")
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (done.append("rename"), replace(self, to))
    )
    write_bytes(tmp_path / "file", b"new")
    assert done == ["content", "rename", "folder"]
    done.clear()
    write_json(tmp_path / "file", {"x": 1})
    assert done == ["content", "rename", "folder"]
    for write, content in ((write_bytes, b"newer"), (write_json, {"x": 2})):
        done.clear()
        write(tmp_path / "file", content, durable=False)
        assert done == ["rename"]


@pytest.mark.parametrize(
    ("at", "expected"), [("fsync", "old"), ("replace", "old"), ("sync_folder", "new")]
)
def test_a_kill_leaves_the_file_whole_and_its_temporary_file_is_removed(tmp_path, at, expected):
    write_bytes(tmp_path / "file", b"old")
    script = """
import os, signal, sys
from pathlib import Path
from ablate.store import files
def die(*given):
    os.kill(os.getpid(), signal.SIGKILL)
owner = {"fsync": os, "replace": Path, "sync_folder": files}[sys.argv[2]]
setattr(owner, sys.argv[2], die)
files.write_bytes(Path(sys.argv[1]), b"new")
"""
    killed = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "file"), at], cwd=ROOT, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_text() == expected
    left = [path for path in tmp_path.iterdir() if path.name != "file"]
    assert len(left) == (expected == "old")
    assert all(
        path.name.startswith(".") for path in left
    )  # no reader that looks for results takes it for one
    remove_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_only_temporaries_are_removed(tmp_path):
    names = ["file", "file.tmp", ".hidden", ".file.1a2b3c4d.tmp"]
    for name in names:
        (tmp_path / name).write_text("")
    remove_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[:3])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b'{"a": 1', b'{"a": 1}}', b"\xff\xfe", b"\0\0\0\0", b'{"a": "\xff"}', b"[1]",
        b"null", b"3", b'"a"',
    ],
)  # fmt: skip
def test_damaged_json_is_refused_in_one_line_that_names_it(tmp_path, content):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(Damaged) as caught:
        read_json(path)
    (line,) = caught.value.lines
    assert line.startswith(f"{path}: is damaged (it does not end with its hash: it was cut,")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": nonsense', b'{"a": "\xff"', b"[1", b'{"a": NaN', b'{"a": -Infinity',
        b'{"a": ' + b"[" * 10**5 + b"]" * 10**5, b'{"a": ' + b"9" * 10**4,
    ],
)  # fmt: skip
def test_what_a_stranger_has_sealed_is_refused_in_one_line_if_it_is_not_json(tmp_path, body):
    """The hash has no key: anybody can make one."""
    path = tmp_path / "result.json"
    path.write_bytes(
        body + b',\n "check": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'
    )
    with pytest.raises(Damaged) as caught:
        read_json(path)
    assert caught.value.lines == (f"{path}: is damaged (not the JSON that was written)",)


def test_every_flip_of_every_bit_and_every_cut_of_json_is_found_before_it_is_parsed(
    tmp_path, monkeypatch
):
    path = tmp_path / "result.json"
    write_json(path, {"n": [1.5], "check it": "ü"})  # short: the seal has most of its bytes
    whole = path.read_bytes()
    monkeypatch.setattr("ablate.store.files.json.loads", None)
    changed = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in range(8)
    ]
    for content in [
        *changed,
        *(whole[:length] for length in range(len(whole))),
        whole + b"\n",
        whole * 2,
    ]:
        path.write_bytes(content)
        with pytest.raises(Damaged):
            read_json(path)


def test_of_several_that_write_a_file_once_one_does(tmp_path):
    write_bytes(tmp_path / "result", b"first", once=True)
    with pytest.raises(FileExistsError):
        write_bytes(tmp_path / "result", b"second", once=True)
    assert (tmp_path / "result").read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_system_without_links_publishes_too(tmp_path, monkeypatch):
    def link(*given):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    test_of_several_that_write_a_file_once_one_does(tmp_path)


def test_a_link_whose_answer_was_lost_is_no_file_of_another_process(tmp_path, monkeypatch):
    """NFS repeats a request without an answer, and the repeated one finds the name taken by the
    first.
    """
    link = os.link

    def twice(source, target):
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    write_bytes(tmp_path / "file", b"ours", once=True)
    with pytest.raises(FileExistsError):
        write_bytes(tmp_path / "file", b"another", once=True)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"ours")]


def test_a_rename_whose_answer_was_lost_has_replaced_the_file(tmp_path, monkeypatch):
    replace = Path.replace

    def twice(source, target):
        replace(source, target)
        replace(source, target)

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", twice)
    write_bytes(tmp_path / "file", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"new")]

    def lost(source, target):
        source.unlink()
        replace(source, target)

    monkeypatch.setattr(Path, "replace", lost)
    with pytest.raises(FileNotFoundError):
        write_bytes(tmp_path / "file", b"newer")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("theirs")
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    write_bytes(tmp_path / "file", b"ours")
    assert (tmp_path / "elsewhere").read_text() == "theirs"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_does_not_have_are_not_written(tmp_path, value):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": value})
    assert list(tmp_path.iterdir()) == []


def test_json_is_written_for_people_too(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1, "y": 2})
    body = '{\n "x": 1,\n "y": 2'
    seal = hashlib.sha256(body.encode()).hexdigest()
    assert (tmp_path / "a.json").read_text() == f'{body},\n "check": "{seal}"\n}}\n'


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1])
def test_hashes_are_of_the_whole_content(tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert sha256(tmp_path / "file") == hashlib.sha256(content).hexdigest()


def test_files_and_folders_are_flushed_and_closed(tmp_path, monkeypatch):
    write_bytes(tmp_path / "file", b"content", durable=False)
    flushed, fsync = [], os.fsync

    def noted_fsync(file):
        flushed.append((file, os.fstat(file).st_ino))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    for sync, path in ((sync_file, tmp_path / "file"), (sync_folder, tmp_path)):
        sync(path)
        file, inode = flushed.pop()
        assert inode == path.stat().st_ino
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)


def test_an_error_names_the_file_that_was_asked_for_and_not_its_temporary_name(
    tmp_path, monkeypatch
):
    def full(self, *given, **named):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(tmp_path / "asked", b"")
    assert caught.value.filename == str(tmp_path / "asked")


def test_a_file_written_once_is_not_replaced_where_the_link_fails_for_another_reason(
    tmp_path, monkeypatch
):
    def fail(*names):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_bytes(tmp_path / "record", b"content", once=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_verified_by_its_hash_and_one_that_cannot_be_read_is_not_called_damaged(
    tmp_path, monkeypatch
):
    path = tmp_path / "file"
    write_bytes(path, b"content")
    verify(path, hashlib.sha256(b"content").hexdigest())
    line = f"^{path}: is damaged or missing \\(its SHA-256 is not the one written\\)$"
    with pytest.raises(Damaged, match=line):
        verify(path, hashlib.sha256(b"Content").hexdigest())
    with pytest.raises(Damaged, match=line):
        verify(tmp_path / "file", "")
    path.unlink()
    with pytest.raises(Damaged, match=line):
        verify(path, hashlib.sha256(b"").hexdigest())
    path.mkdir()
    with pytest.raises(Damaged, match="a folder in place of a file"):
        verify(path, "")
    monkeypatch.setattr(files, "open_file", Failing(files.open_file, 1, BROKEN))
    with pytest.raises(StoreError, match=f"^{path}: cannot be read: Input/output error$") as caught:
        verify(path, "")
    assert not isinstance(caught.value, Damaged)


def test_a_damaged_file_takes_the_place_of_an_earlier_one(tmp_path):
    path, aside = tmp_path / "a.json", tmp_path / "a.json.damaged"
    (aside / "inner").mkdir(parents=True)
    path.write_text("first")
    quarantine(path)
    assert (path.exists(), aside.read_text()) == (False, "first")
    (path / "inner").mkdir(parents=True)
    quarantine(path)
    assert (path.exists(), (aside / "inner").is_dir()) == (False, True)


def test_removing_a_link_keeps_its_target_and_removing_nothing_is_no_error(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    (target / "inner").mkdir(parents=True)
    link.symlink_to(target)
    remove(link)
    remove(link)
    assert (link.is_symlink(), (target / "inner").is_dir()) == (False, True)
    (tmp_path / "file").touch()
    remove(tmp_path / "file" / "below")
    remove(tmp_path / "file")
    remove(target)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["é\x00\u2028", "half of a pair: \ud800"])
def test_every_number_and_text_that_is_written_is_read_bit_by_bit(tmp_path, text):
    draw, path = random.Random(0), tmp_path / "some.json"
    numbers = [struct.unpack("d", draw.randbytes(8))[0] for _ in range(5000)]
    numbers = [number for number in numbers if math.isfinite(number)]
    content = {"numbers": numbers, "large": 10**400, "zero": -0.0, text: text}
    write_json(path, content)
    read = read_json(path)
    assert read == content
    assert math.copysign(1, read["zero"]) == -1
