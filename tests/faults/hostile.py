"""Random and malformed study files: each is read, or refused with the place of the error; never a
traceback.
"""

from __future__ import annotations

import random
from pathlib import Path

from ablate.config.resolve import field_names
from ablate.errors import AblateError
from ablate.study import read_study
from tests.faults.tally import Tally
from tests.study.test_hostile import VALID, mutated

_PIECES = ["{", "}", "[", "]", ":", ", ", "- ", "\n", "\n  ", "&a ", "*a", "!!python/name:os.system ", "#", "'", '"',
           "|", ">", "? ", "%", "@", "1e999", ".nan", "0x", "~", "9" * 400, "\x00", "\u2028", "é", "../", "/etc/passwd",
           "each", "zip", "grid", "set", "require", "where", "preset", "study", "data", "base", "rows", "seeds",
           "corpus", "toy", "files", "h * d_k == d_model", "__import__('os')", "module:Class"]  # fmt: skip


def fuzz(folder: Path, inputs: int, seed: int = 1) -> Tally:
    """Inputs: one third mutated valid studies, one third random tokens of the language, one third
    random bytes.
    """
    tally, draw = Tally("hostile study files"), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    path, pieces = folder / "hostile.yaml", [*_PIECES, *field_names()]
    for tally.tries in range(1, inputs + 1):
        kind = tally.tries % 3
        if kind == 0:
            content = mutated(VALID, draw).encode(errors="surrogatepass")
        elif kind == 1:
            content = "".join(draw.choices(pieces, k=draw.randrange(60))).encode()
        else:
            content = draw.randbytes(draw.randrange(200))
        path.write_bytes(content)
        try:
            read_study(path)
            tally.count("read")
        except AblateError as error:
            tally.count("refused")
            if not all(line.isprintable() and line.startswith(str(path)) for line in error.lines):
                tally.note(f"{content!r}: {error.lines}", wrong=True)
        except Exception as error:
            tally.note(f"{content!r}: {type(error).__name__}: {error}", wrong=True)
    return tally
