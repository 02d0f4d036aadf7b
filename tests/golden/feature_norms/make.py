#!/usr/bin/env python3
"""Writes pyg.npz: PyTorch's BatchNorm1d and PyTorch Geometric's GraphNorm, DiffGroupNorm, MessageNorm
and MeanSubtraction, and NodeNorm written out, in float64.

Needs torch, torch_geometric and numpy. Of each case NAME: the parameters by their names, the output
NAME/out, NAME/grad.* of sum(out * r) for the cotangent r, and the buffers afterwards, NAME/after.*.
All take x; MessageNorm also what entered, h; "graph_norm_batch" three graphs of rows 0-4, 5-16, 17-22.
"""
import os

import numpy as np
import torch
from torch_geometric.nn import DiffGroupNorm, GraphNorm, MeanSubtractionNorm, MessageNorm

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
random = np.random.RandomState(5)
N, D = 23, 7
x = random.standard_normal((N, D)) * 2 + 0.5
h = random.standard_normal((N, 4))
r = random.standard_normal((N, D))
arrays = {"x": x, "h": h, "r": r}


def run(name, layer, forward=lambda f, x: f(x), **more):
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in {"x": x, **more}.items()}
    for p in layer.parameters():
        p.data = torch.tensor(random.standard_normal(p.shape))
    out = forward(layer, *tensors.values())
    (out * torch.tensor(r)).sum().backward()
    arrays[f"{name}/out"] = out.detach().numpy()
    for key, t in list(tensors.items()) + list(layer.named_parameters()):
        key = key.replace("module.", "")
        if key not in tensors:
            arrays[f"{name}/{key}"] = t.detach().numpy()
        arrays[f"{name}/grad.{key}"] = t.grad.numpy()
    for key, t in layer.named_buffers():
        if "running" in key:
            arrays[f"{name}/after.{key}"] = t.numpy().copy()


norm = torch.nn.BatchNorm1d(D)
run("batch_norm_train", norm)
torch.nn.Module.zero_grad(norm)
norm.eval()
run("batch_norm_eval", norm)
run("graph_norm", GraphNorm(D))
run("graph_norm_batch", GraphNorm(D),
    lambda f, x: f(x, torch.tensor([0] * 5 + [1] * 12 + [2] * 6)))
run("group_norm", DiffGroupNorm(D, 3, lamda=0.3))
run("message_norm", MessageNorm(learn_scale=True), lambda f, x, h: f(h, x), h=h)
run("mean_norm", MeanSubtractionNorm())


class NodeNorm(torch.nn.Module):  # Zhou et al., arXiv:2006.07107, with p = 3
    def forward(self, x):
        return x / (x.var(dim=1, unbiased=False, keepdim=True) + 1e-5).sqrt() ** (1 / 3)


run("node_norm", NodeNorm())
np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyg.npz"), **arrays)
