#!/usr/bin/env python3
"""Writes torch.npz: trajectories of PyTorch's optimisers and schedules in float64.

Needs torch and numpy. Three parameters (4, 3), (3,), (2, 2, 2) get fixed random gradients for 12
steps. NAME/p<i> holds parameter i after every step. In "adam_skip" and "momentum_skip" parameter 1
has no gradient at steps 2, 3 and 7. In "adamw_groups" parameter 1 has no weight decay and twice the
learning rate. lr/NAME holds the learning rate before any step of the schedule and after each.
"""
import os

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
SHAPES = [(4, 3), (3,), (2, 2, 2)]
STEPS = 12
random = np.random.RandomState(3)
start = [random.standard_normal(s) for s in SHAPES]
grads = [random.standard_normal((STEPS,) + s) for s in SHAPES]
arrays = {f"start/p{i}": p for i, p in enumerate(start)}
arrays.update({f"grads/p{i}": g for i, g in enumerate(grads)})


def run(name, make, skip=()):
    params = [torch.nn.Parameter(torch.tensor(p)) for p in start]
    optimizer = make(params)
    history = [[] for _ in params]
    for t in range(STEPS):
        for i, p in enumerate(params):
            p.grad = None if i == 1 and t in skip else torch.tensor(grads[i][t])
        optimizer.step()
        for i, p in enumerate(params):
            history[i].append(p.detach().numpy().copy())
    arrays.update({f"{name}/p{i}": np.stack(h) for i, h in enumerate(history)})


o = torch.optim
run("sgd", lambda p: o.SGD(p, lr=0.1))
run("sgd_decay", lambda p: o.SGD(p, lr=0.1, weight_decay=0.03))
run("momentum", lambda p: o.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.03))
run("nesterov", lambda p: o.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.03))
run("adam", lambda p: o.Adam(p, lr=0.02))
run("adam_decay", lambda p: o.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.03))
run("adamw", lambda p: o.AdamW(p, lr=0.02, weight_decay=0.1))
run("adamw_groups", lambda p: o.AdamW([
    {"params": [p[0], p[2]]}, {"params": [p[1]], "weight_decay": 0.0, "lr": 0.04}],
    lr=0.02, weight_decay=0.1))
run("adam_skip", lambda p: o.Adam(p, lr=0.02, weight_decay=0.03), skip=(2, 3, 7))
run("momentum_skip", lambda p: o.SGD(p, lr=0.05, momentum=0.9), skip=(2, 3, 7))


def rates(name, make, steps, metrics=None):
    optimizer = o.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = make(optimizer)
    lr = [optimizer.param_groups[0]["lr"]]
    for t in range(steps):
        optimizer.step()
        schedule.step(*([metrics[t]] if metrics is not None else []))
        lr.append(optimizer.param_groups[0]["lr"])
    arrays[f"lr/{name}"] = np.array(lr)


s = o.lr_scheduler
rates("step", lambda x: s.StepLR(x, step_size=5, gamma=0.3), 20)
rates("cosine", lambda x: s.CosineAnnealingLR(x, T_max=20, eta_min=0.01), 20)
rates("warmup_cosine", lambda x: s.SequentialLR(x, [
    s.LinearLR(x, start_factor=0.1, total_iters=5),
    s.CosineAnnealingLR(x, T_max=15, eta_min=0.01)], milestones=[5]), 20)
metrics = np.array([5, 4, 4, 4, 4.0001, 3.99999, 4, 3, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, np.nan,
                    3.5, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2], dtype=np.float64)
arrays["metrics"] = metrics
rates("plateau_min", lambda x: s.ReduceLROnPlateau(x, factor=0.5, patience=2), len(metrics), metrics)
rates("plateau_cooldown", lambda x: s.ReduceLROnPlateau(
    x, factor=0.1, patience=1, threshold=0.2, threshold_mode="abs", cooldown=2, min_lr=0.004),
    len(metrics), metrics)
rates("plateau_max", lambda x: s.ReduceLROnPlateau(x, mode="max", factor=0.5, patience=3),
      len(metrics), metrics)

grad_list = [torch.nn.Parameter(torch.tensor(p)) for p in start]
for i, p in enumerate(grad_list):
    p.grad = torch.tensor(grads[i][0])
arrays["clip/norm"] = np.array(torch.nn.utils.clip_grad_norm_(grad_list, 1.5).item())
arrays.update({f"clip/p{i}": p.grad.numpy().copy() for i, p in enumerate(grad_list)})
np.savez(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch.npz"), **arrays)
