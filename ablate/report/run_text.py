"""One run, for a terminal: what it is, what carried it out, how it stands, and what its worker said last."""

from __future__ import annotations

from typing import Any

from ablate.config import RowConfig
from ablate.config.plugins import without_digest
from ablate.formatting import duration, plural, setting_text
from ablate.store import RunFolder
from ablate.store.audit import Audit
from ablate.store.status import failure_of, last_lines, read_progress, standing

LOG_LINES = 8


def about(folder: RunFolder) -> dict[str, Any]:
    """All that is known of a run; null for what is absent or damaged, and a line for each damage."""
    read = Audit()
    files = {"run": folder.run, "execution": folder.execution, "provenance": folder.provenance, "result": folder.result}
    found: dict[str, Any] = {name: read.json(path) for name, path in files.items()}
    return {
        "id": folder.id,
        "state": standing(folder),
        **found,
        "progress": read_progress(folder),
        "failure": failure_of(folder),
        "log": last_lines(folder.log, LOG_LINES),
        "damaged": read.faults,
    }


def as_lines(about: dict[str, Any]) -> list[str]:
    """The same for people."""
    lines = [f"run {about['id']}: {about['state']}", *about["damaged"]]
    for name, tell in _PARTS:
        content = about[name]
        if content is not None:
            lines.append(f"{name}:")
            lines += [f"  {line}" for line in tell(content)]
    if about["failure"]:
        lines += ["failure:", f"  {about['failure']}"]
    if about["log"]:
        lines += ["the last lines of its log:", *(f"  {line}" for line in about["log"])]
    return lines


def _run(run: dict[str, Any]) -> list[str]:
    usual = {name: field.default for name, field in RowConfig.model_fields.items()}
    changed = [
        f"{k}={without_digest(setting_text(v))}"
        for k, v in run["config"].items()
        if v != usual.get(k) and v is not None
    ]
    data = run.get("data", {})
    return [
        f"seed {run['seed']}, corpus {data.get('corpus')} {data.get('direction') or ''}".rstrip(),
        f"not as in the paper: {', '.join(changed) or 'nothing'}",
    ]


def _execution(e: dict[str, Any]) -> list[str]:
    tokens = -(-e["micro_batch_tokens"] // (1 << e["halvings"]))
    smaller = f", halved {e['halvings']} times for want of memory" if e["halvings"] else ""
    return [
        f"text {e.get('training')}, on {e['device']}, {plural(e['threads'], 'thread')}",
        f"micro-batches of {tokens} padded tokens{smaller}",
    ]


def _provenance(p: dict[str, Any]) -> list[str]:
    ours, machine = p.get("ablate", {}), p.get("machine", {})
    revision = f", revision {ours['revision']}" if ours.get("revision") else ""
    changes = ", with uncommitted changes" if ours.get("dirty") else ""
    packages = ", ".join(f"{name} {version}" for name, version in p.get("packages", {}).items() if version)
    return [
        f"ablate {ours.get('version', '?')}{revision}{changes}",
        f"Python {p.get('python', '?')}, {packages}",
        f"{machine.get('processor', '?')}, {machine.get('cores', '?')} cores, {machine.get('system', '?')}",
        f"device {p.get('device', '?')}, {p.get('threads', '?')} threads",
    ]


def _result(r: dict[str, Any]) -> list[str]:
    why = f": {r['reason']}" if r.get("reason") else ""
    lines = [f"{r['outcome']} after {r['steps']} steps in {duration(r['seconds'])}{why}"]
    if r.get("weights"):
        lines.append(f"weights {r['weights']['file']}, SHA-256 {r['weights']['sha256']}")
    for id, d in r.get("decodings", {}).items():
        averaged = plural(d.get("averaged", d.get("average_checkpoints", 1)), "checkpoint")
        how = f"beam {d.get('beam')}, alpha {d.get('alpha')}, {averaged} averaged"
        scores = f"PPL {d['ppl']:.3f}, BLEU {d['bleu']:.2f}, {d['signature']}"
        lines.append(f"decoding {id} ({how}) of {d.get('test')} in corpus {d.get('corpus')}: {scores}")
    return lines


_PARTS = (("run", _run), ("execution", _execution), ("provenance", _provenance), ("result", _result))


def progress_line(progress: dict[str, Any]) -> str:
    """A worker's progress report: `step 120 of 450, loss 2.31, PPL 8.12, 7,300 tokens/s`."""
    parts = [f"step {progress['step']} of {progress['steps'] or '?'}"] if progress.get("step") else []
    if progress.get("phase") not in ("training", "left"):
        parts.append(str(progress["phase"]))
    if progress.get("loss") is not None:
        parts.append(f"loss {progress['loss']:.2f}")
    if progress.get("perplexity") is not None:
        parts.append(f"PPL {progress['perplexity']:.2f}")
    if progress.get("tokens_per_second") and progress.get("phase") == "training":
        parts.append(f"{progress['tokens_per_second']:,.0f} tokens/s")
    return ", ".join(parts)
