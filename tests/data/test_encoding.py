"""Encoding many sentences gives the ids of SentencePiece's encoder, in one process or in
several.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.data import encoding, toy
from ablate.data.encoding import Encoded, EncoderPool, TextEncoder
from ablate.data.tokenizer import Tokenizer, train_tokenizer
from ablate.errors import StoreError

PAIRS = toy.generate()["train"][:150]
TEXT = [text for pair in PAIRS for text in pair] + [
    "„Ja“ ½ Maß…",
    "a\u2581b c",
    "中文 日本語",
    "na\u00efve caf\u00e9",
]
TOKENIZERS = {
    name: train_tokenizer(TEXT, 150 if "bytes" not in name else 400, kind, "bytes" in name)
    for name, kind in {"bpe": "bpe", "unigram": "unigram", "bpe with bytes": "bpe"}.items()
}
# Known words and letters, unknown letters, every kind of space, and SentencePiece's character for a
# space.
WORDS = st.text(st.sampled_from("abcdogthe ж中\u00e9\u2581\u00a0\u2028\t\r .,&;<s>"), max_size=30)


def sentences(encoded):
    ends = np.cumsum([0, *encoded.lengths])
    return [encoded.ids[start:end].tolist() for start, end in pairwise(ends)]


@pytest.mark.parametrize("name", list(TOKENIZERS))
@given(texts=st.lists(WORDS | st.sampled_from(TEXT), max_size=8))
@settings(max_examples=150)
def test_ids_are_those_of_sentencepiece(name, texts):
    assert sentences(TextEncoder(TOKENIZERS[name])(texts)) == TOKENIZERS[name].encode(texts)


def test_cached_words_do_not_change_the_ids(monkeypatch):
    monkeypatch.setattr(encoding, "MAX_WORDS", 20)  # so that the cache is emptied now and then
    encoder = TextEncoder(TOKENIZERS["bpe"])
    for start in range(0, len(TEXT), 10):
        some = TEXT[start : start + 10]
        assert sentences(encoder(some)) == TOKENIZERS["bpe"].encode(some)


def test_the_kind_of_a_vocabulary_is_recognized_from_its_model():
    assert {name: tokenizer.kind for name, tokenizer in TOKENIZERS.items()} == {
        "bpe": "bpe", "unigram": "unigram", "bpe with bytes": "bpe",
    }  # fmt: skip


def test_unseen_characters_are_encoded_as_bytes():
    tokenizer = TOKENIZERS["bpe with bytes"]
    (ids,) = tokenizer.encode(["the Ω dog"])
    assert tokenizer.decode([ids]) == ["the Ω dog"]
    assert TOKENIZERS["bpe"].decode(TOKENIZERS["bpe"].encode(["the Ω dog"])) != ["the Ω dog"]


def test_a_mask_selects_sentences():
    encoded = Encoded(np.array([4, 5, 6, 7], dtype=np.uint32), np.array([2, 0, 1, 1]))
    kept = encoded.only(np.array([True, True, False, True]))
    assert sentences(kept) == [[4, 5], [], [7]]


@pytest.fixture
def models(tmp_path):
    """Files of a vocabulary for the source, and another for the target."""
    for name, text in (("source", PAIRS), ("target", PAIRS[:80])):
        (tmp_path / name).write_bytes(
            train_tokenizer([word for pair in text for word in pair], 80).model
        )
    return tmp_path / "source", tmp_path / "target"


CHUNKS = [([source for source, _ in PAIRS[i : i + 7]], [target for _, target in PAIRS[i : i + 7]]) for i in range(0, 150, 7)]  # fmt: skip


@pytest.mark.parametrize("processes", [1, 3])
def test_several_processes_encode_in_order_like_one(models, processes):
    source, target = (Tokenizer(path.read_bytes()) for path in models)
    with EncoderPool(models, processes) as encode:
        found = list(encode(iter(CHUNKS)))
    assert [(sentences(a), sentences(b)) for a, b in found] == [
        (source.encode(a), target.encode(b)) for a, b in CHUNKS
    ]


def test_a_killed_process_is_an_error_and_no_process_is_left(models):
    with EncoderPool(models, 2) as encode:
        encoded = encode(iter(CHUNKS * 100))
        next(encoded)
        pids = [process.pid for process in multiprocessing.active_children()]
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(StoreError, match="was killed; run the same command again"):
            list(encoded)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_at_most_two_chunks_per_process_are_read_ahead(models):
    read = []

    def chunks():
        for number, chunk in enumerate(CHUNKS):
            read.append(number)
            yield chunk

    with EncoderPool(models, 2) as encode:
        for done, _ in enumerate(encode(chunks()), 1):
            assert len(read) <= done + 4


def test_workers_exit_when_their_parent_is_killed(models):
    script = f"""
import multiprocessing, os, signal
from pathlib import Path
from ablate.data.encoding import EncoderPool
with EncoderPool([Path({str(models[0])!r}), Path({str(models[1])!r})], 2) as encode:
    next(encode([[["the dog"], ["kana"]]] * 10))
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_worker_loads_neither_settings_nor_torch():
    script = (
        "import sys, ablate.data.encoding; print({'torch', 'pydantic', 'pyarrow'} & "
        "set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
