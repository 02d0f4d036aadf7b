#!/usr/bin/env python3
"""Writes swin_v2.npz and qk_norm.npz: attention layers and their gradients in f64, from the formulas by PyTorch.

swin_v2: window attention of Swin Transformer V2 (Liu et al., CVPR 2022, equations 2 and 4, and its published code): 8
channels, 2 heads, a 2 x 3 window, 3 windows; biases of queries and values only; scores exp(min(theta, log 100)) cos(q, k)
+ 16 sigmoid(W2 relu(W1 offset + b1)). The second head's theta lies above log 100.
qk_norm: attention of 12 channels in 3 heads whose queries and keys go through a LayerNorm with a scale and no shift.
in.x, w.* parameters, out.y, rand.r the cotangent, gin.x and gw.* the gradients under it.
"""
import math
import os

import numpy as np
import torch
from torch.nn import functional as F

torch.manual_seed(6)
here = os.path.dirname(os.path.abspath(__file__))


def draw(*shape, scale=0.3):
    return (scale * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def write(name, x, weights, y):
    r = torch.randn_like(y)
    grads = torch.autograd.grad(y, [x] + list(weights.values()), r)
    arrays = {"in.x": x, "out.y": y, "rand.r": r, "gin.x": grads[0]}
    arrays.update({"w." + k: v for k, v in weights.items()})
    arrays.update({"gw." + k: g for k, g in zip(weights, grads[1:])})
    np.savez_compressed(os.path.join(here, name), **{k: v.detach().numpy() for k, v in arrays.items()})


def heads_of(x, heads):
    b, t, c = x.shape
    return x.reshape(b, t, heads, c // heads).transpose(1, 2)


def swin_v2(height=2, width=3, dim=8, heads=2):
    x = draw(3, height * width, dim, scale=1)
    w = {"qkv.weight": draw(3 * dim, dim), "proj.weight": draw(dim, dim), "proj.bias": draw(dim), "q_bias": draw(dim),
         "v_bias": draw(dim), "cpb_mlp.0.weight": draw(512, 2), "cpb_mlp.0.bias": draw(512),
         "cpb_mlp.2.weight": draw(heads, 512, scale=0.05)}
    w["logit_scale"] = torch.tensor([math.log(10), math.log(120)], dtype=torch.float64).requires_grad_()
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    at = torch.stack([ys.flatten(), xs.flatten()], -1)
    offset = (at[:, None] - at[None]).double() / torch.tensor([height - 1, width - 1]) * 8  # query minus key
    offset = torch.sign(offset) * torch.log2(offset.abs() + 1) / 3
    hidden = F.relu(F.linear(offset, w["cpb_mlp.0.weight"], w["cpb_mlp.0.bias"]))
    bias = 16 * torch.sigmoid(F.linear(hidden, w["cpb_mlp.2.weight"])).permute(2, 0, 1)
    qkv = F.linear(x, w["qkv.weight"], torch.cat([w["q_bias"], torch.zeros_like(w["q_bias"]), w["v_bias"]]))
    q, k, v = (heads_of(part, heads) for part in qkv.split(dim, -1))
    tau = torch.clamp(w["logit_scale"], max=math.log(100)).exp()[:, None, None]
    p = (tau * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2) + bias).softmax(-1)
    write("swin_v2.npz", x, w, F.linear((p @ v).transpose(1, 2).reshape(x.shape), w["proj.weight"], w["proj.bias"]))


def qk_norm(dim=12, heads=3):
    x, d = draw(2, 5, dim, scale=1), dim // heads
    w = {"qkv.weight": draw(3 * dim, dim), "qkv.bias": draw(3 * dim), "proj.weight": draw(dim, dim),
         "proj.bias": draw(dim), "q_norm": draw(d, scale=1), "k_norm": draw(d, scale=1)}
    q, k, v = (heads_of(part, heads) for part in F.linear(x, w["qkv.weight"], w["qkv.bias"]).split(dim, -1))
    q, k = F.layer_norm(q, (d,), w["q_norm"]), F.layer_norm(k, (d,), w["k_norm"])
    y = (q @ k.transpose(-1, -2) / math.sqrt(d)).softmax(-1) @ v
    write("qk_norm.npz", x, w, F.linear(y.transpose(1, 2).reshape(x.shape), w["proj.weight"], w["proj.bias"]))


swin_v2()
qk_norm()
