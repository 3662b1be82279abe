"""What a study shows: the plan, the status and the table. Reads the study and the store, never torch."""
