"""Shared by the parts of first-light: JSON lines in $OUT, kept as they come, and checks that go on
after a failure."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

OUT = Path(os.environ["OUT"])
DRY = os.environ.get("DRY") == "1"
DEVICE = "cpu" if DRY else "cuda:0"
BEGAN = time.monotonic()
DEADLINE = BEGAN + float(os.environ.get("PART_SECONDS", "1e9"))


def left() -> float:
    """Seconds until this part is stopped."""
    return DEADLINE - time.monotonic()


class Lines:
    """A file of JSON lines in $OUT, which also go to standard output."""

    def __init__(self, name: str) -> None:
        self.path, self.bad, self.good = OUT / name, [], 0

    def write(self, **values: Any) -> None:
        line = json.dumps({"at": round(time.monotonic() - BEGAN, 1), **values}, default=str)
        with self.path.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)

    def check(self, name: str, work: Callable[[], dict[str, Any]], needs: float = 0.0) -> None:
        """Run a check; a failure becomes a line. `needs`: seconds without which it is left out."""
        if left() < needs:
            self.write(check=name, skipped=f"{left():.0f} s left")
            return
        start = time.monotonic()
        try:
            values = work()
        except (Exception, SystemExit) as error:
            where = [
                f"{Path(f.filename).name}:{f.lineno}"
                for f in traceback.extract_tb(error.__traceback__)
            ]
            self.write(
                check=name,
                ok=False,
                error=f"{type(error).__name__}: {error}"[:1500],
                where=where[-8:],
            )
            print(traceback.format_exc(), file=sys.stderr)
            self.bad.append(name)
            return
        ok = values.pop("ok", True)
        (self.bad.append(name) if not ok else None)
        self.good += bool(ok)
        self.write(check=name, ok=ok, s=round(time.monotonic() - start, 2), **values)

    def end(self) -> None:
        """Write the summary and leave, with exit code 1 if a check has found a fault."""
        self.write(summary=True, good=self.good, bad=self.bad)
        sys.exit(bool(self.bad))
