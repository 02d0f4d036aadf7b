#!/usr/bin/env python3
"""Writes pyg.npz: outputs and gradients of PyTorch Geometric's GATConv in float64.

Needs torch, torch_geometric and numpy. The graph has 14 nodes; nodes 5 and 9 have no edge, some
edges come twice, nodes 2 and 7 have self-loops. For each case NAME: NAME/x, the parameters
NAME/lin.weight, att_src, att_dst, bias, a cotangent NAME/r, the output NAME/out, and NAME/grad.* of
sum(out * r).
"""
import os

import numpy as np
import torch
from torch_geometric.nn import GATConv

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
random = np.random.RandomState(4)
NODES = 14
pairs = [(u, v) for u, v in random.randint(0, NODES, (60, 2)) if not {u, v} & {5, 9}]
pairs += pairs[:6] + [(2, 2), (7, 7), (7, 7)]
edges = torch.tensor(np.array(pairs).T.copy())
arrays = {"edges": np.array(pairs, dtype=np.int64)}


def run(name, size, **options):
    layer = GATConv(size, **options)
    x = torch.tensor(random.standard_normal((NODES, size)), requires_grad=True)
    for p in layer.parameters():
        p.data = torch.tensor(random.standard_normal(p.shape))
    out = layer(x, edges)
    r = torch.tensor(random.standard_normal(out.shape))
    (out * r).sum().backward()
    arrays[f"{name}/x"] = x.detach().numpy()
    arrays[f"{name}/r"] = r.numpy()
    arrays[f"{name}/out"] = out.detach().numpy()
    arrays[f"{name}/grad.x"] = x.grad.numpy()
    for key, p in layer.named_parameters():
        shape = p.shape[1:] if key.startswith("att") else p.shape  # (1, H, D) there
        arrays[f"{name}/{key}"] = p.detach().numpy().reshape(shape)
        arrays[f"{name}/grad.{key}"] = p.grad.numpy().reshape(shape)


run("concat", 6, out_channels=4, heads=3)
run("mean", 6, out_channels=5, heads=4, concat=False)
run("one_head", 5, out_channels=7, negative_slope=0.1)
run("no_loops", 5, out_channels=8, heads=2, add_self_loops=False, bias=False)

np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyg.npz"), **arrays)
