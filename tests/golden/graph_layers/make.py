#!/usr/bin/env python3
"""Writes pyg.npz: outputs and gradients of PyTorch Geometric's GCNConv and GatedGraphConv and of
PyTorch's GRUCell in float64.

Needs torch, torch_geometric and numpy. The graph is that of ../gat/make.py: 14 nodes; nodes 5 and 9
have no edge, some edges come twice, nodes 2 and 7 have self-loops. For each case NAME: the inputs
(NAME/x; GRUCell also NAME/h), the parameters by their names, a cotangent NAME/r, the output NAME/out,
and NAME/grad.* of sum(out * r).
"""
import os

import numpy as np
import torch
from torch_geometric.nn import GatedGraphConv, GCNConv

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
random = np.random.RandomState(4)
NODES = 14
pairs = [(u, v) for u, v in random.randint(0, NODES, (60, 2)) if not {u, v} & {5, 9}]
pairs += pairs[:6] + [(2, 2), (7, 7), (7, 7)]
edges = torch.tensor(np.array(pairs).T.copy())
arrays = {"edges": np.array(pairs, dtype=np.int64)}


def run(name, layer, forward, **inputs):
    tensors = {key: torch.tensor(x, requires_grad=True) for key, x in inputs.items()}
    for p in layer.parameters():
        p.data = torch.tensor(random.standard_normal(p.shape))
    out = forward(layer, *tensors.values())
    r = torch.tensor(random.standard_normal(out.shape))
    (out * r).sum().backward()
    arrays[f"{name}/r"] = r.numpy()
    arrays[f"{name}/out"] = out.detach().numpy()
    for key, t in list(tensors.items()) + list(layer.named_parameters()):
        arrays[f"{name}/{key}"] = t.detach().numpy()
        arrays[f"{name}/grad.{key}"] = t.grad.numpy()


def graph(name, layer, size):
    run(name, layer, lambda f, x: f(x, edges), x=random.standard_normal((NODES, size)))


graph("gcn_narrower", GCNConv(6, 4), 6)
graph("gcn_wider", GCNConv(3, 7), 3)
graph("gcn_no_loops", GCNConv(5, 5, add_self_loops=False, bias=False), 5)
graph("ggnn_one", GatedGraphConv(6, 1), 6)
graph("ggnn_padded", GatedGraphConv(7, 3), 4)
graph("ggnn_no_bias", GatedGraphConv(5, 2, bias=False), 5)
run("gru", torch.nn.GRUCell(4, 6), lambda f, x, h: f(x, h),
    x=random.standard_normal((9, 4)), h=random.standard_normal((9, 6)))

np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyg.npz"), **arrays)
