"""The fault suite: inject faults into runs and studies, and print a table of the outcomes.

python -m tests.faults            every fault at every point; about an hour on two cores
python -m tests.faults --quick    the part that the tests run: one point of each kind
python -m tests.faults kills eio  only these
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.faults import launchers, one_run
from tests.faults.small import Small
from tests.faults.tally import Tally


def cases(folder: Path, quick: bool) -> dict[str, Callable[[], Tally]]:
    """Every fault by name."""
    small: list[Small] = []

    def of_one_run(case: Callable[[Small, bool], Tally]) -> Tally:
        if not small:
            small.append(Small(folder / "small"))
        return case(small[0], quick)

    return {
        **{name: partial(of_one_run, case) for name, case in one_run.CASES.items()},
        "launchers": lambda: launchers.several_launchers(
            folder, runs=12 if quick else 200, stops=2 if quick else 20
        ),
        "random-kills": lambda: launchers.random_kills(folder / "kills", 2 if quick else 100),
        "signals": lambda: launchers.signals(folder / "signals", 2 if quick else 50),
    }


def main() -> int:
    """Run the selected faults; 1 if work was lost or an output is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="one point of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON, for the tests")
    parser.add_argument("faults", nargs="*", help="only these")
    arguments = parser.parse_args()
    tallies = []
    with tempfile.TemporaryDirectory() as folder:
        known = cases(Path(folder), arguments.quick)
        if unknown := set(arguments.faults) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
        if not arguments.json:
            print(f"{'fault':48} {'tries':>6} {'lost':>5} {'wrong':>6} {'seconds':>8}", flush=True)
        for name in arguments.faults or known:
            began = time.monotonic()
            tally = known[name]()
            tally.seconds = time.monotonic() - began
            tallies.append(tally)
            if not arguments.json:
                _print(tally)
    if arguments.json:
        print(json.dumps([asdict(tally) for tally in tallies]))
    return int(any(tally.lost or tally.wrong for tally in tallies))


def _print(tally: Tally) -> None:
    counts = ", ".join(f"{count} {what}" for what, count in tally.counts.items())
    print(
        f"{tally.fault:48} {tally.tries:6} {tally.lost:5} {tally.wrong:6} {tally.seconds:8.0f}  {counts}".rstrip(),
        flush=True,
    )
    for line in tally.notes[:20]:
        print(f"    {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
