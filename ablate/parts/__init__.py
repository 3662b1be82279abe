"""The parts of the model, without torch: a module for each family declares its fields, its
variants, the rules about them and what they cost. Their tensors are in model/.
"""
