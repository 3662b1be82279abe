"""Significance of differences between rows and base. Numbers in, numbers out; no library."""

from ablate.stats.bootstrap import BootstrapTest, paired_bootstrap
from ablate.stats.comparison import PairedScores
from ablate.stats.judge import verdicts
from ablate.stats.significance import LEVEL, PairedTTest, holm, kendall_tau_b, paired_t_test
from ablate.stats.verdict import Verdict, p_text

__all__ = [
    "LEVEL",
    "BootstrapTest",
    "PairedScores",
    "PairedTTest",
    "Verdict",
    "holm",
    "kendall_tau_b",
    "p_text",
    "paired_bootstrap",
    "paired_t_test",
    "verdicts",
]
