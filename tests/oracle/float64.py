"""Float64 throughout: transformers computes norms, softmax, rotary angles and routers in float32 whatever the model's type.

Its modules name that type as `torch.float32`, `torch.float` or `.float()`. While this context lasts, those names mean float64
there, so that what a model in float64 computes is right to 1e-15 in every family, with no list of what each one casts.
"""
import contextlib
import sys


class Double:
    """torch, except that its float32 is float64."""

    def __init__(self, torch):
        self._torch = torch
        self.float32 = self.float = torch.float64

    def __getattr__(self, name):
        return getattr(self._torch, name)


@contextlib.contextmanager
def throughout():
    import torch
    double, single = Double(torch), torch.Tensor.float
    modules = [module for name, module in list(sys.modules.items())
               if name.startswith("transformers.") and vars(module).get("torch") is torch]
    for module in modules:
        module.torch = double
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = single
        for module in modules:
            module.torch = torch
