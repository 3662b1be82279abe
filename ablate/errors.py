"""Faults in the input of a user, as values, and the exceptions that carry them.

A check yields or raises `Fault`s. A reader adds the place of each fault. Only `str(fault)`, at the
edge of the program, makes a sentence, and no code looks into a sentence.

AblateError     errors that the user can fix: one line for each, without a traceback
|- StudyError   in a study file or in --set, each with file:line:column
|- UsageError   an invalid option, row, seed or run on the command line
|- DataError    a missing or malformed corpus, with file and line
|- MachineError no disk, memory or device for what was asked
|- StoreError   results on disk that cannot be read, are damaged, or belong to other data
|  |- Damaged   a file whose content does not match its hash, or whose path is not a file
Interrupted     a signal has stopped the process; all progress is saved and can be resumed

`Invalid` is a `ValueError` with faults that have no place yet. Any other `ValueError`, and
`assert`, signal an error of the caller or a broken invariant, and show a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from ablate.formatting import ellipsis, first_few, printable, without_hashes, without_secrets

# Least similarity (difflib's ratio) at which an unknown name is taken for an allowed name: that of
# four letters, one of them wrong.
NEAR = 0.75
NEAR_SHORT = 0.6  # for names of up to three letters, one of them wrong
# Words of other tools and papers, which have other letters than the word that is meant. Both are
# written without underscores.
SYNONYMS = {
    "gpu": "cuda",
    "rotary": "rope",
    "drop": "dropout",
    "swish": "silu",
    "pos": "positionalencoding",
    "prenorm": "pre",
    "postnorm": "post",
    "hf": "huggingface",
    "md": "markdown",
    "tex": "latex",
}

EXIT_RUN_FAILED = 1
EXIT_BAD_INPUT = 2  # the command line or the study
EXIT_DATA = 3
EXIT_MACHINE = 4  # its disk, memory and devices, and the results that it stores
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # as if SIGPIPE had ended the process

MAX_MESSAGE = 1000  # characters of a fault
# Codes of faults, for programs.
UNKNOWN_NAME = "unknown-name"
NO_SUCH_FILE = "no-such-file"
PENDING = "pending"
NO_EFFECT = "no-effect"


@dataclass(frozen=True)
class Mark:
    """A place of a fault: a position in a file, printed as by compilers, or a part of the command
    line.

    line: line number from 1; 0 for a part of the command line and for a whole file.
    column: column number from 1; 0 for a whole line.
    """

    source: str
    line: int = 0
    column: int = 0

    @property
    def is_option(self) -> bool:
        """Whether an option gives the value at this place: a value in a file has a line."""
        return self.line == 0

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join((self.source, *numbers))

    @classmethod
    def parse(cls, text: str) -> Mark:
        """The place that `str` has printed."""
        match = re.fullmatch(r"(.*?)(?::(\d+))?(?::(\d+))?", text, re.DOTALL)
        assert match is not None
        source, line, column = match.groups("0")
        return cls(source, int(line), int(column))

    def error(self, fault: Fault | str) -> StudyError:
        """The error at this position."""
        return StudyError(as_fault(fault).located(self))


@dataclass(frozen=True)
class Fault:
    """A fault in something that a user wrote. `str` gives one line of English.

    problem: statement of the fault, such as `h=3 does not divide d_model=64`.
    fields: names of the fields that it concerns; first the field that a user would change.
    subject: subject of the statement, which is printed before it: `dropout`, `row "A h=3"`.
    given: value as written, which is printed before the problem; an unknown name, after it.
    allowed: description of the allowed values.
    choices: all allowed names, if they are few.
    remedy: clause that says what to do: `set d_k`.
    path: keys and indices from the checked value to its part with the fault.
    place: place of the fault, once a reader knows it.
    causes: command-line options without which there would be no fault.
    code: kind of the fault, for programs; "" for the code of the error that carries it.
    meant: allowed name that the given name probably stands for; printed instead of the remedy.
    """

    problem: str
    fields: tuple[str, ...] = ()
    subject: str = ""
    given: str = ""
    allowed: str = ""
    remedy: str = ""
    path: tuple[str | int, ...] = ()
    place: Mark | None = None
    causes: tuple[Mark, ...] = ()
    code: str = ""
    meant: str = ""
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = self.sentence
        if self.place:  # a file may quote values of any length
            text = ellipsis(text, MAX_MESSAGE)
        if self.causes:
            text = f"{' '.join(map(str, self.causes))}: {text} ({self.place})"
        elif self.place:
            text = f"{self.place}: {text}"
        return _shown(text)

    @property
    def sentence(self) -> str:
        """The fault in English, without its place."""
        words = [self.given, self.problem]
        if self.code == UNKNOWN_NAME:
            words.reverse()
        text = " ".join(filter(None, words))
        if self.subject:
            text = f"{self.subject}: {text}"
        if self.allowed:
            text = f"{text}: must be {self.allowed}"
        if not self.solution:
            return text
        if text.endswith("?"):  # such as "is a return missing?"
            return f"{text} {self.solution[:1].upper()}{self.solution[1:]}"
        return f"{text}; {self.solution}"

    @property
    def solution(self) -> str:
        """The remedy, or the question whether another name was meant."""
        return f'did you mean "{self.meant}"?' if self.meant else self.remedy

    def located(self, place: Mark) -> Fault:
        """The fault with a place."""
        return replace(self, place=place)

    def about(self, subject: str) -> Fault:
        """The fault with a further subject, such as `layer 2`, before the present subject."""
        return replace(self, subject=f"{subject}: {self.subject}" if self.subject else subject)

    def nested(self, *steps: str | int) -> Fault:
        """The fault with keys or indices before its path, as a fault of the larger value."""
        return replace(self, path=(*steps, *self.path))

    def as_json(self, code: str) -> dict[str, Any]:
        """The fault as data for programs: `code` unless the fault has a code, its sentence, and its
        fields that are not empty.
        """
        known: dict[str, Any] = {"code": self.code or code, "message": _shown(self.sentence)}
        if self.place:
            known["place"] = _shown(str(self.place))
        if self.causes:
            known["causes"] = [_shown(str(option)) for option in self.causes]
        if self.fields:
            known["fields"] = list(self.fields)
        for name in ("subject", "given", "problem", "allowed", "meant"):
            if text := getattr(self, name):
                known[name] = _shown(text)
        if self.solution:
            known["remedy"] = _shown(self.solution)
        if self.choices:
            known["choices"] = [_shown(name) for name in self.choices]
        return known


def _shown(text: str) -> str:
    """Text in one line, without secrets and without the hashes of classes."""
    return printable(without_secrets(without_hashes(text)))


def as_fault(fault: Fault | str) -> Fault:
    """The fault; for a text, a fault with this text as problem."""
    return fault if isinstance(fault, Fault) else Fault(fault)


def faults_in(error: ValueError) -> tuple[Fault, ...]:
    """The faults in an error that a check raised."""
    return error.faults if isinstance(error, Invalid) else (Fault(str(error)),)


def not_allowed(given: str, allowed: str, remedy: str = "", meant: str = "") -> Fault:
    """The fault of a value: `"reluu" is not allowed: must be relu or gelu; did you mean "relu"?`.

    Args:
        given: the value, in quotes if it is text; `null` for a field without a value.
        allowed: description of the allowed values.
        remedy: what to do, if this does not follow from the allowed values.
        meant: the allowed name that is probably meant.
    """
    if given == "null":
        return Fault("has no value", allowed=allowed, remedy=remedy, meant=meant)
    return Fault(
        "is not allowed",
        given=given,
        allowed=allowed,
        remedy=remedy,
        code="not-allowed",
        meant=meant,
    )


def not_a_choice(given: str, choices: Iterable[str]) -> Fault:
    """The fault of a text that is none of a few allowed names."""
    choices = tuple(choices)
    fault = not_allowed(f'"{given[:60]}"', listed(choices), meant=meant_name(given, choices))
    return replace(fault, choices=choices)


class Invalid(ValueError):  # noqa: N818
    """A check refuses values. The faults have no places; a reader adds them."""

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = tuple(map(as_fault, faults))
        super().__init__("; ".join(fault.sentence for fault in self.faults))


def nested_faults(step: str | int, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Add a key or an index before the path of each fault, as faults of the larger value."""
    for fault in faults:
        yield fault.nested(step)


class AblateError(Exception):
    """Base class of errors that the user can fix.

    Attributes:
        faults: the faults; a text is a fault with this problem.
        lines: one complete message for each fault, without secrets in addresses.
        code: kind of the error, for programs.
        exit_code: exit code of a command that ends with this error.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = EXIT_BAD_INPUT

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = tuple(map(as_fault, faults))
        self.lines = tuple(map(str, self.faults))
        super().__init__("\n".join(self.lines))

    def as_json(self) -> dict[str, Any]:
        """The error as data for programs: its code, the exit code, and its faults."""
        faults = [fault.as_json(self.code) for fault in self.faults]
        return {"error": self.code, "exit_code": self.exit_code, "faults": faults}


class StudyError(AblateError):
    """Errors in a study file or in `--set`: all of them, in the order of the file."""

    code = "study"


class UsageError(AblateError):
    """An invalid option or argument on the command line."""

    code = "usage"


def wrong_option(name: str, *faults: Fault | str) -> UsageError:
    """The error of an option, an argument or a command: `--budget: "x" is not a time`."""
    return UsageError(*(as_fault(fault).located(Mark(name)) for fault in faults))


def ineffective_option(name: str, problem: str, remedy: str = "") -> UsageError:
    """The error of an option without effect: `--lines has an effect only with --logs`."""
    return UsageError(Fault(problem, given=name, remedy=remedy, code=NO_EFFECT))


class DataError(AblateError):
    """A missing or malformed corpus."""

    code = "data"
    exit_code = EXIT_DATA


@contextmanager
def data_field(name: str) -> Iterator[None]:
    """Name a field of `data`, such as `train`, in each fault of a DataError that names no field."""
    try:
        yield
    except DataError as error:
        faults = [replace(fault, fields=fault.fields or (name,)) for fault in error.faults]
        raise DataError(*faults) from None


class MachineError(AblateError):
    """This machine has no disk, memory or device for what was asked."""

    code = "machine"
    exit_code = EXIT_MACHINE


class StoreError(AblateError):
    """Results on disk that cannot be read, are damaged, or belong to other data."""

    code = "results"
    exit_code = EXIT_MACHINE


class Damaged(StoreError):  # noqa: N818
    """A file whose content does not match its hash, or whose path is not a file."""

    code = "damaged"


class Interrupted(Exception):  # noqa: N818
    """A signal has stopped the process. All progress is saved, and the same command resumes it."""


def _words(name: str) -> set[str]:
    """The words of a name such as `train_steps` or `norm=rmsnorm`."""
    return set(re.findall(r"[^\W_]+", name))


def bare_letters(name: str) -> str:
    """A name without what people write differently: case, spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", name).lower()


def meant_name(given: object, allowed: Iterable[str]) -> str:
    """The allowed name that is probably meant: a name with the same letters as `given`, its
    synonym, a name with nearly the same letters, or a name that contains all of its words, as
    `train_steps` contains `steps`, and `warmup_steps` contains `warm-up`. Case is ignored. "" if
    there is none, or if `given` is no text.
    """
    if not isinstance(given, str) or not bare_letters(given):
        return ""
    names = {name.lower(): name for name in allowed}
    by_letters = {bare_letters(name): name for name in names}
    letters, given = bare_letters(given), given.lower()
    for same in (letters, SYNONYMS.get(letters)):
        if same and same in by_letters:
            return names[by_letters[same]]
    near = get_close_matches(given, names, n=1, cutoff=NEAR if len(given) > 3 else NEAR_SHORT)
    if not near:
        words = _words(given)
        with_words = []
        for name in names:
            if words and (words < _words(name) or letters in _words(name)):
                with_words.append(name)
        near = get_close_matches(given, with_words, n=1, cutoff=0.0)
    return names[near[0]] if near else ""


def nearest_path(path: Path, is_candidate: Callable[[Path], bool]) -> str:
    """The path of the file or folder beside `path` that is probably meant, or "".

    Args:
        path: does not exist.
        is_candidate: whether an entry of the same folder may be meant.
    """
    try:
        beside = {entry.stem: entry for entry in path.parent.iterdir() if is_candidate(entry)}
    except OSError:
        return ""
    # Without the endings, which would make any two studies similar.
    nearest = meant_name(path.stem, beside)
    return str(path.with_name(beside[nearest].name)) if nearest else ""


def no_such_file(path: Path, is_candidate: Callable[[Path], bool]) -> Fault:
    """The fault of a path that does not exist; arguments as in `nearest_path`."""
    meant = nearest_path(path, is_candidate)
    return Fault("no such file", place=Mark(str(path)), code=NO_SUCH_FILE, meant=meant)


def refuse_output(option: str, path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output file that is a folder or an input, or has no folder, before any work."""
    problem, remedy, meant = "is a folder", "give a file", ""
    if path.exists() and any(path.samefile(source) for source in inputs):
        problem, remedy = "is an input of this command", "choose another name"
    elif not path.is_dir():
        if path.absolute().parent.is_dir():
            return
        meant = nearest_path(path.parent, Path.is_dir)
        problem, remedy = f"there is no folder {path.parent}", ""
    raise wrong_option(f"{option} {path}", Fault(problem, remedy=remedy, meant=meant))


def listed(names: Iterable[object]) -> str:
    """Join names for a message: `a, b or c`."""
    *words, last = map(str, names)
    if not words:
        return last
    return f"{', '.join(words)} or {last}"


def unknown_name(kind: str, name: str, allowed: Iterable[str], remedy: str | None = None) -> Fault:
    """The fault of an unknown name: `unknown field "drop_out"; did you mean "dropout"?`.

    Args:
        kind: what the name should be, such as `field`.
        name: the unknown name.
        allowed: all allowed names.
        remedy: what to do if no allowed name is similar; None to list the allowed names.
    """
    allowed = tuple(allowed)
    return Fault(
        f"unknown {kind}",
        given=f'"{name[:60]}"',
        remedy=f"allowed: {first_few(allowed, 24)}" if remedy is None else remedy,
        code=UNKNOWN_NAME,
        meant=meant_name(name, allowed),
        choices=allowed if remedy is None else (),
    )
