"""Plans, comparisons, single runs and publications as text; without torch."""
