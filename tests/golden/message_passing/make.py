#!/usr/bin/env python3
"""PyTorch Geometric's softmax and scatter over the edges into nodes, GINEConv, and dot-product
attention and a weighted sum by heads written out, all in float64 with gradients under random
cotangents. Rows of edge tensors are in the order of `edges`. Needs torch, torch_geometric, numpy."""

import os

import numpy as np
import torch
from torch_geometric.nn import GINEConv
from torch_geometric.utils import scatter, softmax

torch.manual_seed(7)
n, e = 14, 60
source = torch.randint(0, n, (e,))
target = torch.randint(0, n - 3, (e,))  # nothing goes into the last nodes
source[10], target[10] = source[11], target[11]  # twice the same edge
out = {"edges": torch.stack([source, target], 1).numpy()}


def draw(name, *shape):
    x = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    out[name] = x.detach().numpy()
    return x


def add(name, y, **inputs):
    r = torch.randn_like(y)
    out[name + ".y"], out[name + ".r"] = y.detach().numpy(), r.numpy()
    for key, g in zip(inputs, torch.autograd.grad((y * r).sum(), list(inputs.values()))):
        out[f"{name}.g.{key}"] = g.numpy()


scores, values = draw("scores", e, 3), draw("values", e, 4)
add("softmax", softmax(scores * 5, target, num_nodes=n), scores=scores)
for how in ("sum", "mean", "max"):
    add(how, scatter(values, target, dim_size=n, reduce=how), values=values)
top = scatter(values, target, dim_size=n, reduce="max").detach()
total = scatter(torch.exp(values - top[target]), target, dim_size=n, reduce="sum")
some = (scatter(torch.ones(e, 1), target, dim_size=n, reduce="sum") > 0).double()
add("logsumexp", some * torch.log(total + (1 - some)) + some * top, values=values)

x, attributes, weight = draw("x", n, 5), draw("attributes", e, 5), draw("weight", 6, 5)
linear = torch.nn.Linear(5, 6, bias=False, dtype=torch.float64)
gine = GINEConv(linear, eps=0.25)
linear.weight = torch.nn.Parameter(weight.detach().clone())
y = gine(x, torch.stack([source, target]), attributes)
add("gine", y, x=x, attributes=attributes, weight=linear.weight)

query, key, value = (draw(name, n, 2, 3) for name in ("query", "key", "value"))
alpha = softmax((query[target] * key[source]).sum(-1) / 3**0.5, target, num_nodes=n)
messages = alpha.unsqueeze(-1) * value[source]
add("attention", scatter(messages, target, dim_size=n, reduce="sum"), query=query, key=key, value=value)
add("neighbor_max", scatter(value[source], target, dim_size=n, reduce="max"), value=value)

np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyg.npz"), **out)
