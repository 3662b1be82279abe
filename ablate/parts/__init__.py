"""Parts of the model without torch, a module for each family: fields, variants, rules and costs.
The tensors of the parts are in model/.
"""
