"""Studies on clusters: profiles, submission to Slurm and Ray, and the pilots that work there."""
