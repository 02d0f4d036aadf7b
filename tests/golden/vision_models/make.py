#!/usr/bin/env python3
"""Whole models of CSwin and LipsFormer-CSwin, computed from their formulas in f64: *_model.npz beside this file.

Arguments: files of other models of either kind (in.x, w.*, out.y, gw.*, hp as in README.md), whose results are compared
with those of the formulas here: lips?_cswin NAME SPLITS HEADS. Needs torch.
"""
import os
import re
import sys

import numpy as np
import torch
from torch.nn import functional as f


def attend(qkv, w, name, heads, stripe, lips):
    """qkv: three of (B, H, W, C); in stripes of (height, width)."""
    b, h, wide, c = qkv[0].shape
    sh, sw = stripe

    def cut(t):
        t = t.reshape(b, h // sh, sh, wide // sw, sw, -1).transpose(2, 3)
        return t.reshape(-1, sh, sw, t.shape[-1])

    q, k, v = (cut(t) for t in qkv)
    lepe = f.conv2d(v.permute(0, 3, 1, 2), w[name + ".get_v.weight"], w[name + ".get_v.bias"], padding=1, groups=c)
    q, k, v = (t.reshape(-1, sh * sw, heads, c // heads).transpose(1, 2) for t in (q, k, v))
    if lips:
        q, k = f.normalize(q, dim=-1), f.normalize(k, dim=-1)
    scale = 12 if lips else (c // heads) ** -0.5
    y = torch.softmax(scale * q @ k.transpose(-1, -2), -1) @ v
    y = y.transpose(1, 2).reshape(-1, sh, sw, c) + lepe.permute(0, 2, 3, 1)
    if lips:
        y = y / heads ** 0.5
    return y.reshape(b, h // sh, wide // sw, sh, sw, c).transpose(2, 3).reshape(b, h, wide, c)


def model(x, w, splits, heads, lips):
    def norm(t, name):
        weight, bias, c = w[name + ".weight"], w[name + ".bias"], t.shape[-1]
        if lips:
            return weight * (c / (c - 1) * (t - t.mean(-1, keepdim=True))) + bias
        return f.layer_norm(t, (c,), weight, bias)

    def conv(t, name, **options):
        return f.conv2d(t.permute(0, 3, 1, 2), w[name + ".weight"], w[name + ".bias"], **options).permute(0, 2, 3, 1)

    def linear(t, name):
        return f.linear(t, w[name + ".weight"], w[name + ".bias"])

    def attention(t, name, stage):
        c, last = t.shape[-1], stage + 1 == len(splits) or t.shape[1] == splits[stage]
        q, k, v = linear(t, name + ".qkv").split(c, -1)
        side, split = t.shape[1], splits[stage]
        if last:
            y = attend((q, k, v), w, name + ".attns.0", heads[stage], (side, side), lips)
        else:
            y = torch.cat([attend([z[..., i * c // 2:(i + 1) * c // 2] for z in (q, k, v)], w, f"{name}.attns.{i}",
                                  heads[stage] // 2, stripe, lips)
                           for i, stripe in enumerate([(side, split), (split, side)])], -1)
        return linear(y, name + ".proj")

    def mlp(t, name):
        return linear(f.gelu(linear(t, name + ".mlp.fc1")), name + ".mlp.fc2")

    def block(t, name, stage):
        if not lips:
            t = t + attention(norm(t, name + ".norm1"), name, stage)
            return t + mlp(norm(t, name + ".norm2"), name)
        c = t.shape[-1]
        y = f.gelu(conv(t, name + ".dwconv_layers.0", padding=3, groups=c))
        t = t + w[name + ".scale_layers.0.scale"] * f.gelu(conv(y, name + ".nin"))
        t = t + w[name + ".scale_layers.1.scale"] * f.gelu(conv(t, name + ".dwconv_layers.1", padding=3, groups=c))
        t = t + w[name + ".alpha1.scale"] * attention(t, name, stage)
        return norm(t + w[name + ".alpha2.scale"] * mlp(t, name), name + ".norm2")

    t = conv(x.permute(0, 2, 3, 1), "stage1_conv_embed.0", stride=4, padding=0 if lips else 2)
    t = norm(t, "stage1_conv_embed.2")
    for stage in range(len(splits)):
        i = 0
        while f"stage{stage + 1}.{i}.qkv.weight" in w:
            t = block(t, f"stage{stage + 1}.{i}", stage)
            i += 1
        if stage + 1 < len(splits):
            t = norm(conv(t, f"merge{stage + 1}.conv", stride=2, padding=0 if lips else 1), f"merge{stage + 1}.norm")
    return linear((t if lips else norm(t, "norm")).mean((1, 2)), "head")


def results(arrays, splits, heads, lips):
    w = {k[2:]: torch.tensor(a, requires_grad=True) for k, a in arrays.items() if k.startswith("w.")}
    x = torch.tensor(arrays["in.x"], requires_grad=True)
    y = model(x, w, splits, heads, lips)
    (y * torch.tensor(arrays["rand.r"])).sum().backward()
    out = {"out.y": y.detach().numpy(), "gin.x": x.grad.numpy()}
    for k, p in w.items():
        out["gw." + k] = np.zeros(p.shape) if p.grad is None else p.grad.numpy()
    return out


def shapes(lips, width, depths, classes):
    """Of a model's parameters, with an MLP of twice the features."""
    all_of = {}

    def add(name, *shape, bias=True):
        all_of[name + ".weight"] = shape
        if bias:
            all_of[name + ".bias"] = shape[:1]

    add("stage1_conv_embed.0", width, 3, *((4, 4) if lips else (7, 7)))
    add("stage1_conv_embed.2", width)
    for s, depth in enumerate(depths):
        c, last = width << s, s + 1 == len(depths)
        for i in range(depth):
            name = f"stage{s + 1}.{i}"
            add(name + ".qkv", 3 * c, c), add(name + ".proj", c, c)
            add(name + ".norm1", c), add(name + ".norm2", c)
            for part in range(1 if last else 2):
                add(f"{name}.attns.{part}.get_v", c if last else c // 2, 1, 3, 3)
            add(name + ".mlp.fc1", 2 * c, c), add(name + ".mlp.fc2", c, 2 * c)
            if lips:
                add(name + ".dwconv_layers.0", c, 1, 7, 7), add(name + ".dwconv_layers.1", c, 1, 7, 7)
                add(name + ".nin", c, c, 1, 1)
                for scale in ("scale_layers.0", "scale_layers.1", "alpha1", "alpha2"):
                    all_of[f"{name}.{scale}.scale"] = (c,)
        if not last:
            add(f"merge{s + 1}.conv", 2 * c, c, *((2, 2) if lips else (3, 3)))
            add(f"merge{s + 1}.norm", 2 * c)
    if not lips:
        add("norm", c)
    add("head", classes, c)
    return all_of


def main():
    if len(sys.argv) > 1:
        path, splits, heads = sys.argv[1:]
        arrays = dict(np.load(path))
        got = results(arrays, *([int(n) for n in t.split(",")] for t in (splits, heads)),
                      "lips" in os.path.basename(path))
        for kind in ("out", "gin", "gw"):
            print(kind, max(np.abs(a - arrays[k]).max() / max(np.abs(arrays[k]).max(), 1e-300)
                            for k, a in got.items() if k.startswith(kind + ".") and np.abs(arrays[k]).max() > 0))
        return
    for lips in (False, True):
        rng = np.random.default_rng(3 + lips)
        arrays = {"in.x": rng.standard_normal((2, 3, 16, 16)), "rand.r": rng.standard_normal((2, 3))}
        for name, shape in shapes(lips, 4, (2, 1), 3).items():
            scales = len(shape) == 1 and name.endswith("weight")
            arrays["w." + name] = 0.3 * rng.standard_normal(shape) + (1 if scales else 0)
        arrays |= results(arrays, (2, 1), (2, 4), lips)
        name = "lips_cswin_model.npz" if lips else "cswin_model.npz"
        np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), **arrays)


main()
