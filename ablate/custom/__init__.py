"""Users' classes and functions: their names in a study, their kinds, their source, their faults."""
