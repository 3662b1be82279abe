"""Former names of commands and options. They work until version 1.0, with a note."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.stdio import echo

# The former name of a command, or of a command with an option -> the present name.
FORMER = {
    "translate": "predict",
    "generate": "predict",
    "fill": "predict",
    "predict --prompt": "predict --text",
    "logs": "status --logs",
    "stop": "cluster stop",
    "verify --filesystem": "cluster check",
    "schema": "init --schema",
    "plan --to-see": "plan --difference",
    "publish --to": "publish --out",
    "judge --row": "judge --by",
    "attention --sentence": "attention --text",
    "attention --pairs": "attention --records",
}


def present_words(words: Sequence[str]) -> list[str]:
    """Replace former names in the words of a command line, and print a note for each."""
    present = list(words)
    for former, name in FORMER.items():
        command, *options = former.split()
        if present[0] != command:
            continue
        replaced = (
            _with_option(present, name, *options) if options else _with_command(present, name)
        )
        if replaced != present:
            echo(f"note: `ablate {former}` is now `ablate {name}`", err=True)
            present = replaced
    return _with_text_format(present)


def _with_command(words: Sequence[str], name: str) -> list[str]:
    former, *rest = words
    if former == "fill":  # the text was an argument, and is now an option
        for place, word in enumerate(rest):
            if "<mask>" in word and not word.startswith("--"):
                rest[place : place + 1] = ["--text", word]
                break
    return [*name.split(), *rest]


def _with_option(words: Sequence[str], name: str, former: str) -> list[str]:
    """The words with the present name of an option. If the present command takes the value as an
    argument, the name of the option is left out.
    """
    command, _, option = name.partition(" --")
    _, *rest = words
    present, is_found = command.split(), False
    for word in rest:
        given, equals, value = word.partition("=")
        if given != former:
            present.append(word)
            continue
        is_found = True
        if option:
            present.append(f"--{option}{equals}{value}")
        elif equals:
            present.append(value)
    return present if is_found else list(words)


def _with_text_format(words: Sequence[str]) -> list[str]:
    """The words with `--format text` instead of `--format rich`."""
    present = list(words)
    for place, word in enumerate(words):
        if word == "--format=rich":
            present[place] = "--format=text"
        elif word == "rich" and words[place - 1] == "--format":
            present[place] = "text"
    if present != list(words):
        echo("note: `--format rich` is now `--format text`", err=True)
    return present
