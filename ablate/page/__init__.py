"""The report: one web page that needs no network, and the same figures as files for a paper."""
