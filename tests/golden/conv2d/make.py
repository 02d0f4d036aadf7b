"""Convolutions and their gradients by PyTorch 2, f64, images as (B, H, W, C): torch.npz."""

import os

import numpy as np
import torch

CASES = {
    # name: x (B, H, W, C), weight, stride, padding, groups
    "dense": ((2, 6, 7, 4), (5, 4, 3, 3), (1, 1), (1, 1), 1),
    "strides": ((2, 9, 8, 3), (4, 3, 3, 2), (2, 3), (2, 1), 1),
    "groups": ((2, 5, 6, 6), (8, 3, 3, 3), (1, 2), (1, 0), 2),
    "patches": ((2, 6, 8, 3), (7, 3, 2, 4), (2, 4), (0, 0), 1),
    "pointwise": ((2, 3, 4, 5), (6, 5, 1, 1), (1, 1), (0, 0), 1),
    "depthwise7": ((1, 8, 16, 5), (5, 1, 7, 7), (1, 1), (3, 3), 5),
    "depthwise5": ((1, 6, 12, 6), (6, 1, 5, 5), (1, 1), (2, 0), 6),
    "depthwise3": ((1, 5, 7, 18), (18, 1, 3, 3), (1, 1), (1, 1), 18),
    "depthwise_strides": ((2, 9, 8, 6), (6, 1, 3, 5), (2, 3), (1, 3), 6),
}

torch.manual_seed(0)
out = {}
for name, (shape, weight_shape, stride, padding, groups) in CASES.items():
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(weight_shape, dtype=torch.float64, requires_grad=True)
    b = torch.randn(weight_shape[0], dtype=torch.float64, requires_grad=True)
    y = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w, b, stride, padding, 1, groups)
    y = y.permute(0, 2, 3, 1)
    r = torch.randn(y.shape, dtype=torch.float64)
    (y * r).sum().backward()
    arrays = {"x": x, "weight": w, "bias": b, "y": y, "r": r,
              "gx": x.grad, "gweight": w.grad, "gbias": b.grad}
    out.update({f"{name}.{k}": v.detach().contiguous().numpy() for k, v in arrays.items()})
    out[f"{name}.options"] = np.array([*stride, *padding, groups], dtype=np.int64)
np.savez(os.path.join(os.path.dirname(__file__), "torch.npz"), **out)
