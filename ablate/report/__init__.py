"""Tables, plans and comparisons as text: columns, formats and sentences; without torch."""
