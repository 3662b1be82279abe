"""Tables, plans and comparisons as text: columns, formats and sentences. Nothing here imports
torch.
"""
