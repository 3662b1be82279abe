"""Adam with decoupled decay that steps every other time, by the mean of two gradients (idea 13)."""

import torch


class EveryOther(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                for name in ("waiting", "mean", "square"):
                    state.setdefault(name, torch.zeros_like(parameter))
                state["calls"] = state.get("calls", torch.zeros(())) + 1
                state["waiting"] += parameter.grad / 2
                if int(state["calls"]) % 2 == 0:
                    self.update(parameter, state, group["lr"], group["weight_decay"])

    def update(self, parameter, state, rate, decay):
        gradient = state["waiting"]
        state["mean"].lerp_(gradient, 0.2)
        state["square"].lerp_(gradient.square(), 0.05)
        parameter.mul_(1 - rate * decay)
        parameter.addcdiv_(state["mean"], state["square"].sqrt() + 1e-10, value=-rate)
        gradient.zero_()
