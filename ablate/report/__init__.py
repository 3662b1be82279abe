"""Plans, comparisons and single runs as text; without torch."""
