"""What the results of a study say: scores, differences, verdicts, designs and looks. Nothing here
imports torch.
"""
