"""Is the CUDA path right? Gradients of each variant beside a CPU, compiled functions beside their
references, compilations over many shapes, decoding, memory that runs out."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import torch
from common import DEVICE, DRY, Lines
from workload import TEST, TRAIN, V, row, split, trainer

from ablate.config import DecodingConfig
from ablate.decoding.translate import translate_ids
from ablate.kernels import cross_entropy, device, dropout_add
from ablate.model import build

lines = Lines("correct.jsonl")
DATA = split(None, TRAIN, 100 if DRY else 3000)
TOKENS = 200 if DRY else 4096
POSITIONS = "positional_encoding"
ONE = {"architecture": "decoder-only"}
VARIANTS: list[dict[str, Any]] = [
    {}, {"n_heads": 1, "d_k": 128, "d_v": 128}, {"d_k": 16, "d_v": 64}, {"d_k": 4}, {POSITIONS: "rope"}, ONE,
    {"norm": "rmsnorm", "norm_position": "pre", "activation": "swiglu"}, {"n_kv_heads": 2}, {POSITIONS: "relative"},
    {POSITIONS: "alibi"}, {POSITIONS: "learned"}, {POSITIONS: "t5"}, {"attention": "local", "attention_window": 4},
    {"attention": "linear"}, {"attention": "differential"}, {"mixer": "lstm"}, {"score_cap": 30.0},
    {"qk_norm": "head"}, {**ONE, "mixer": "gated_deltanet", POSITIONS: "none"}, {"z_loss": 1e-4},
    {**ONE, "n_experts": 4, "experts_per_token": 2},
]  # fmt: skip
LIMITS = {"fp32": 1e-4, "bf16": 5e-2}


def gradients(
    where: str, precision: str, fields: dict[str, Any], size: str = "XS"
) -> tuple[float, torch.Tensor]:
    """The loss per token and all gradients of the first batch, by the trainer's own path."""
    config = row(size, precision, **{"batch_tokens": TOKENS, "dropout": 0.0, **fields})
    t = trainer(config, DATA, where)
    n = t._accumulate(1)
    assert n is not None, "out of memory"
    found = [p.grad for p in t.optimizer.parameters if p.grad is not None]
    assert all(g.device.type == where.split(":")[0] and g.dtype == torch.float32 for g in found)
    return float(t.loss_sum) / n, torch.cat([g.flatten().double().cpu() for g in found])


def variant(fields: dict[str, Any]) -> dict[str, Any]:
    exact, expected = gradients("cpu", "fp32", fields)
    out: dict[str, Any] = {"ok": True}
    for precision, limit in LIMITS.items():
        loss, found = gradients(DEVICE, precision, fields)
        error = float((found - expected).norm() / expected.norm())
        out[precision] = {"loss": round(loss / exact - 1, 9), "gradient": float(f"{error:.2e}")}
        out["ok"] &= error < limit  # NaN is not
    return out


def compiled_against_eager() -> dict[str, Any]:
    """A step with dropout, compiled and not: masks are the same, so gradients must be nearly."""
    start = time.monotonic()
    _, one = gradients(DEVICE, "bf16", {"dropout": 0.1})
    first = time.monotonic() - start
    can, device._can_compile = device._can_compile, lambda: False
    try:
        _, other = gradients(DEVICE, "bf16", {"dropout": 0.1})
    finally:
        device._can_compile = can
    error = float((one - other).norm() / other.norm())
    return {
        "ok": error < 2e-2,
        "gradient": error,
        "first_compiled_step_s": round(first, 1),
        "compiled": can(),
    }


def functions() -> dict[str, Any]:
    """The fused functions beside their references in double precision."""
    out: dict[str, Any] = {"ok": True}
    for rows in (7, 33):
        residual, x = (torch.randn(rows, 29, 128, device=DEVICE) for _ in range(2))
        words = torch.randint(-32768, 32768, x.shape, device=DEVICE).to(torch.int16)
        weight, bias = (torch.randn(128, device=DEVICE) for _ in range(2))
        got = dropout_add.fused_dropout_add_norm(residual, x, words, 6554, weight, bias, 1e-6)
        d = [t.double() for t in (residual, x, weight, bias)]
        want = dropout_add.dropout_add_norm(d[0], d[1], words, 6554, d[2], d[3], 1e-6)
        out[f"norm_{rows}"] = float((got - want).norm() / want.norm())
        logits, targets = (
            torch.randn(rows * 9, 512, device=DEVICE),
            torch.randint(500, (rows * 9,), device=DEVICE),
        )
        loss, gradient = cross_entropy.fused_loss_and_gradient(logits.bfloat16(), targets, 500, 0.1)
        want_loss, want = cross_entropy.loss_and_gradient(
            logits.bfloat16().double(), targets, 500, 0.1
        )
        out[f"loss_{rows}"] = abs(float(loss) / float(want_loss) - 1)
        out[f"grad_{rows}"] = float((gradient - want).norm() / want.norm())
        out["ok"] &= (
            out[f"norm_{rows}"] < 1e-5 and out[f"loss_{rows}"] < 1e-5 and out[f"grad_{rows}"] < 1e-2
        )
    return out


def compilations() -> dict[str, Any]:
    """Graphs that torch compiles in steps of many shapes, of three widths, and with other dropout."""
    from torch._dynamo.utils import counters

    graphs, seconds = [counters["stats"]["unique_graphs"]], []
    for fields in (
        {},
        {"dropout": 0.3},
        {"d_model": 64},
        {"d_model": 192, "n_heads": 4, "d_k": 48, "d_v": 48},
    ):
        t = trainer(row("XS", "bf16", batch_tokens=TOKENS, **fields), DATA, DEVICE)
        for step in range(1, 3 if DRY else 13):
            start = time.monotonic()
            t._step(step)
            seconds.append(round(time.monotonic() - start, 3))
        graphs.append(counters["stats"]["unique_graphs"])
    reasons = Counter(str(k)[:120] for k in counters["graph_break"])
    return {
        "graphs": graphs,
        "steps_over_1s": sum(s > 1 for s in seconds),
        "slowest_s": max(seconds),
        "breaks": reasons,
    }


def many_widths() -> dict[str, Any]:
    """Ten widths in one process, as a ladder has: torch's limit is 8 compilations of a function."""
    widths = (32, 48, 64, 80, 96, 112, 128, 160, 192, 224)
    for width in widths[: 2 if DRY else None]:
        size = {"d_model": width, "n_heads": 4, "d_k": width // 4, "d_v": width // 4, "n_layers": 1}
        trainer(row("XS", "bf16", batch_tokens=TOKENS, **size), DATA, DEVICE)._step(1)
    return {"widths": len(widths)}


def kernels() -> dict[str, Any]:
    """Kernels of a step of size S: number, time, names; cuDNN's attention must not be among them."""
    from torch.profiler import ProfilerActivity, profile

    t = trainer(row("XS" if DRY else "S", "bf16", batch_tokens=TOKENS), DATA, DEVICE)
    t._step(1)
    if DRY:
        return {"kernels": None}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            t._step(1)
        torch.cuda.synchronize()
    events = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    times: Counter[str] = Counter()
    for event in events:
        times[event.name[:70]] += event.device_time_total / 3e3
    top = {name: round(ms, 3) for name, ms in times.most_common(14)}
    names = " ".join(times).lower()
    return {
        "ok": not ("cudnn" in names and "sdpa" in names),
        "kernels_a_step": len(events) / 3, "gpu_ms_a_step": round(sum(times.values()), 2),
        "attention": sorted({n[:60] for n in times if any(w in n.lower() for w in ("fmha", "flash", "attention"))}),
        "top_ms": top,
    }  # fmt: skip


def syncs() -> dict[str, Any]:
    """Steps with torch's warnings for each wait of the host for the GPU."""
    import warnings

    t = trainer(row("XS", "bf16", batch_tokens=TOKENS), DATA, DEVICE)
    t._step(1)
    if DRY:
        return {"waits": None}
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in (2, 3, 4):
            t._step(step)
    torch.cuda.set_sync_debug_mode("default")
    where = Counter(
        f"{w.filename[-40:]}:{w.lineno}" for w in seen if "synchron" in str(w.message).lower()
    )
    return {"waits": sum(where.values()) / 3, "where": where}


def decoding(beam: int) -> dict[str, Any]:
    """Translations of random weights on both devices; fp32, so nearly all must be equal."""
    sentences = [
        s.tolist() for s in (split(None, TEST, 40)["source"][i] for i in range(12 if DRY else 40))
    ]
    settings = DecodingConfig(beam=beam, alpha=0.6, max_extra_length=5)
    found = []
    for where in ("cpu", DEVICE):
        model = build(row("XS"), V, 3, torch.device(where)).eval()
        found.append(translate_ids(model, sentences, settings, torch.device(where)))
    equal = sum(a == b for a, b in zip(*found, strict=True)) / len(sentences)
    return {"ok": equal > 0.9, "equal": equal}


def memory_runs_out() -> dict[str, Any]:
    """A step that needs more memory than the process may take is repeated in halves."""
    t = trainer(
        row("XS" if DRY else "base", "bf16", batch_tokens=TOKENS if DRY else 25_000),
        DATA,
        DEVICE,
        V,
    )
    before = t.micro_batch_tokens
    if DRY:
        return {"before": before}
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 1.5e9) / total)
    try:
        t._step(1)
        loss = float(t.loss_sum) / t.loss_tokens
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {
        "ok": t.micro_batch_tokens < before and 0 < loss < 20,
        "before": before,
        "after": t.micro_batch_tokens,
        "loss": loss,
    }


def main() -> None:
    if not DRY:
        device.prepare(torch.device(DEVICE))
    lines.check("functions", functions)
    lines.check("compiled against eager", compiled_against_eager)
    for fields in VARIANTS[: 3 if DRY else None]:
        lines.check(f"gradients {fields}", lambda fields=fields: variant(fields), needs=3)
    lines.check("kernels", kernels, needs=5)
    lines.check("waits", syncs, needs=3)
    for beam in (1, 4):
        lines.check(f"decoding beam {beam}", lambda beam=beam: decoding(beam), needs=5)
    lines.check("memory runs out", memory_runs_out, needs=10)
    lines.check("compilations", compilations, needs=25)
    lines.check("many widths", many_widths, needs=25)
    lines.end()


if __name__ == "__main__":
    main()
