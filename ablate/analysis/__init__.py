"""Read the results of a study: scores, the experiment of its table, its current look and its next
stage. Nothing here imports torch.
"""
