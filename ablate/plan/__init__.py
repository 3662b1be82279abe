"""What a study will cost and what is left of it: plan, budget, power and progress. Nothing here
imports torch.
"""
