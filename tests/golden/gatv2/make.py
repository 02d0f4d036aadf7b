#!/usr/bin/env python3
"""Writes pyg.npz: outputs and gradients of PyTorch Geometric's GATv2Conv in float64.

Needs torch, torch_geometric and numpy. The graph is that of ../gat/make.py: 14 nodes; nodes 5 and 9
have no edge, some edges come twice, nodes 2 and 7 have self-loops. For each case NAME: NAME/x, the
features of edges NAME/e where it has them, the parameters NAME/lin_l.weight and so on, a cotangent
NAME/r, the output NAME/out, and NAME/grad.* of sum(out * r). With shared weights lin_r is lin_l.
"""
import os

import numpy as np
import torch
from torch_geometric.nn import GATv2Conv

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
random = np.random.RandomState(4)
NODES = 14
pairs = [(u, v) for u, v in random.randint(0, NODES, (60, 2)) if not {u, v} & {5, 9}]
pairs += pairs[:6] + [(2, 2), (7, 7), (7, 7)]
edges = torch.tensor(np.array(pairs).T.copy())
arrays = {"edges": np.array(pairs, dtype=np.int64)}


def run(name, size, edge_dim=None, **options):
    layer = GATv2Conv(size, edge_dim=edge_dim, **options)
    x = torch.tensor(random.standard_normal((NODES, size)), requires_grad=True)
    e = None
    if edge_dim:
        e = torch.tensor(random.standard_normal((len(pairs), edge_dim)), requires_grad=True)
    for p in layer.parameters():
        p.data = torch.tensor(random.standard_normal(p.shape))
    out = layer(x, edges, e)
    r = torch.tensor(random.standard_normal(out.shape))
    (out * r).sum().backward()
    arrays[f"{name}/x"] = x.detach().numpy()
    arrays[f"{name}/r"] = r.numpy()
    arrays[f"{name}/out"] = out.detach().numpy()
    arrays[f"{name}/grad.x"] = x.grad.numpy()
    if edge_dim:
        arrays[f"{name}/e"] = e.detach().numpy()
        arrays[f"{name}/grad.e"] = e.grad.numpy()
    for key, p in layer.named_parameters():
        shape = p.shape[1:] if key == "att" else p.shape  # (1, H, D) there
        arrays[f"{name}/{key}"] = p.detach().numpy().reshape(shape)
        arrays[f"{name}/grad.{key}"] = p.grad.numpy().reshape(shape)


run("concat", 6, out_channels=4, heads=3)
run("mean", 6, out_channels=5, heads=4, concat=False)
run("one_head", 5, out_channels=7, negative_slope=0.1)
run("no_loops", 5, out_channels=8, heads=2, add_self_loops=False, bias=False)
run("shared", 5, out_channels=3, heads=4, share_weights=True)
run("edges", 6, out_channels=4, heads=3, edge_dim=3)
run("edges_mean", 4, out_channels=5, heads=2, edge_dim=2, concat=False, share_weights=True)
run("edges_no_loops", 4, out_channels=3, heads=2, edge_dim=5, add_self_loops=False)

np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyg.npz"), **arrays)
