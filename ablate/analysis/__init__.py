"""What the results of a study say: scores, differences, verdicts, designs and stages. Nothing here
imports torch.
"""
