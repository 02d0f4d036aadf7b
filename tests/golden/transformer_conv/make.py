#!/usr/bin/env python3
"""Writes pyg.npz: outputs and gradients of PyTorch Geometric's TransformerConv in float64.

Needs torch, torch_geometric and numpy. The graph has 14 nodes; nodes 5 and 9 have no edge, some
edges come twice, nodes 2 and 7 have self-loops. For each case NAME: NAME/x, NAME/e (features of
edges in the order of the list, some cases), the parameters NAME/lin_query.weight and so on, a
cotangent NAME/r, the output NAME/out, and NAME/grad.* of sum(out * r).
"""
import os

import numpy as np
import torch
from torch_geometric.nn import TransformerConv

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
random = np.random.RandomState(5)
NODES = 14
pairs = [(u, v) for u, v in random.randint(0, NODES, (60, 2)) if not {u, v} & {5, 9}]
pairs += pairs[:6] + [(2, 2), (7, 7), (7, 7)]
edges = torch.tensor(np.array(pairs).T.copy())
arrays = {"edges": np.array(pairs, dtype=np.int64)}


def run(name, size, **options):
    layer = TransformerConv(size, **options)
    x = torch.tensor(random.standard_normal((NODES, size)), requires_grad=True)
    e = None
    if options.get("edge_dim"):
        e = torch.tensor(random.standard_normal((len(pairs), options["edge_dim"])),
                         requires_grad=True)
    for p in layer.parameters():
        p.data = torch.tensor(random.standard_normal(p.shape))
    out = layer(x, edges, e)
    r = torch.tensor(random.standard_normal(out.shape))
    (out * r).sum().backward()
    arrays[f"{name}/x"] = x.detach().numpy()
    arrays[f"{name}/r"] = r.numpy()
    arrays[f"{name}/out"] = out.detach().numpy()
    arrays[f"{name}/grad.x"] = x.grad.numpy()
    if e is not None:
        arrays[f"{name}/e"] = e.detach().numpy()
        arrays[f"{name}/grad.e"] = e.grad.numpy()
    for key, p in layer.named_parameters():
        if p.grad is None:  # lin_skip without a root term
            continue
        arrays[f"{name}/{key}"] = p.detach().numpy()
        arrays[f"{name}/grad.{key}"] = p.grad.numpy()


run("concat", 6, out_channels=4, heads=3)
run("mean", 6, out_channels=5, heads=4, concat=False)
run("beta", 5, out_channels=7, heads=2, beta=True)
run("beta_mean", 5, out_channels=6, heads=2, beta=True, concat=False)
run("no_root", 5, out_channels=8, heads=2, root_weight=False)
run("edges", 5, out_channels=4, heads=2, edge_dim=3)
run("edges_mean_beta", 5, out_channels=3, heads=3, edge_dim=4, beta=True, concat=False, bias=False)

np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyg.npz"), **arrays)
