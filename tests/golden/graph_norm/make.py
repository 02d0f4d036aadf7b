#!/usr/bin/env python3
"""PyTorch Geometric's PairNorm (PN) and LayerNorm(mode="graph") for a batch of one graph, and the
PairNorm authors' three modes written out, all in float64 with gradients under a random cotangent.
Needs torch, torch_geometric and numpy."""

import os

import numpy as np
import torch
from torch_geometric.nn import LayerNorm, PairNorm

torch.manual_seed(3)
n, d = 23, 11
x = (torch.randn(n, d, dtype=torch.float64) * 2 + 0.5).requires_grad_()
r = torch.randn(n, d, dtype=torch.float64)
out = {"x": x.detach().numpy(), "r": r.numpy()}


def add(name, y, *more):
    grads = torch.autograd.grad((y * r).sum(), (x,) + more)
    out[name + "_y"] = y.detach().numpy()
    for which, g in zip(("x", "weight", "bias"), grads):
        out[name + "_g" + which] = g.numpy()


add("pyg_pn", PairNorm(scale=2.5, eps=1e-6)(x))

# github.com/LingxiaoShawn/PairNorm, layers.py, with scale 2.5.
mean = x.mean(dim=0)
centred = x - mean
add("pn", 2.5 * centred / (1e-6 + centred.pow(2).sum(dim=1).mean()).sqrt())
add("pn_si", 2.5 * centred / (1e-6 + centred.pow(2).sum(dim=1, keepdim=True)).sqrt())
add("pn_scs", 2.5 * x / (1e-6 + x.pow(2).sum(dim=1, keepdim=True)).sqrt() - mean)

norm = LayerNorm(d, mode="graph").double()
with torch.no_grad():
    norm.weight.copy_(torch.randn(d))
    norm.bias.copy_(torch.randn(d))
out["weight"] = norm.weight.detach().numpy()
out["bias"] = norm.bias.detach().numpy()
add("layer_norm", norm(x, torch.zeros(n, dtype=torch.long)), norm.weight, norm.bias)
np.savez(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyg.npz"), **out)
