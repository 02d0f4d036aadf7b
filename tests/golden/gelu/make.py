#!/usr/bin/env python3
"""PyTorch's GELU, exact and tanh form, in float64 with its derivative. Needs torch and numpy."""

import os

import numpy as np
import torch

x = torch.linspace(-9, 9, 73, dtype=torch.float64, requires_grad=True)
out = {"x": x.detach().numpy()}
for form in ("none", "tanh"):
    y = torch.nn.functional.gelu(x, approximate=form)
    (g,) = torch.autograd.grad(y.sum(), x)
    out["y_" + form] = y.detach().numpy()
    out["slope_" + form] = g.numpy()
np.savez_compressed(os.path.join(os.path.dirname(__file__), "torch.npz"), **out)
