#!/usr/bin/env python3
"""Times the deep GAT on Cora in PyTorch Geometric beside lipgrad, and beside lipgrad's matrix products alone.

The model: Linear(1433, 64) - 30 x [dropout 0.6, GATConv of 4 heads of 64 features, attention dropout 0.3, ELU
but after the last] - Linear(256, 7); raw features, Adam with weight decay 5e-4, full batch. PyTorch Geometric
has no LipschitzNorm: its time stands beside lipgrad's with and without.

  train   zero_grad, forward in training mode, cross-entropy on the 140 training nodes, backward, Adam step
  epoch   train, then forward in evaluation mode and three accuracies

Rounds of both programs alternate; the figures are medians over all epochs but each round's first.

  tools/bench/build
  LIPGRAD_DATA=... python3 tools/bench/compare_pyg_depth.py

Needs python3 with torch, torch_geometric, numpy and scipy.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import compare_pyg  # skips where a package is missing
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv


class DeepGat(torch.nn.Module):
    def __init__(self, features, classes, layers=30, heads=4, hidden=64):
        super().__init__()
        self.input = torch.nn.Linear(features, hidden)
        widths = [hidden] + [heads * hidden] * (layers - 1)
        self.conv = torch.nn.ModuleList(GATConv(width, hidden, heads, dropout=0.3) for width in widths)
        self.output = torch.nn.Linear(heads * hidden, classes)

    def forward(self, x, edge_index):
        h = self.input(x)
        for number, conv in enumerate(self.conv):
            h = conv(F.dropout(h, p=0.6, training=self.training), edge_index)
            if number + 1 < len(self.conv):
                h = F.elu(h)
        return self.output(h)


class PygRun:
    def __init__(self, x, y, edges, masks):
        torch.manual_seed(0)
        self.x, self.y, self.edges, self.masks = torch.from_numpy(x.toarray()), y, edges, masks
        self.model = DeepGat(x.shape[1], int(y.max()) + 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, weight_decay=5e-4)

    def epoch(self):
        start = time.perf_counter()
        self.model.train()
        self.optimizer.zero_grad()
        out = self.model(self.x, self.edges)
        F.cross_entropy(out[self.masks[0]], self.y[self.masks[0]]).backward()
        self.optimizer.step()
        middle = time.perf_counter()
        self.model.eval()
        with torch.no_grad():
            pred = self.model(self.x, self.edges).argmax(dim=-1)
            [int((pred[m] == self.y[m]).sum()) / int(m.sum()) for m in self.masks]
        return middle - start, time.perf_counter() - start


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    usual = os.path.join(here, "../../build/release/tools/bench/lipgrad_bench_gat_depth")
    parser = argparse.ArgumentParser(description="the deep GAT on Cora: PyTorch Geometric beside lipgrad")
    parser.add_argument("--lipgrad", default=os.path.normpath(usual), help="lipgrad's program")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4, help="timed epochs a round")
    args = parser.parse_args()
    data = os.environ.get("LIPGRAD_DATA", os.path.expanduser("~/.cache/lipgrad"))
    folder = os.path.join(data, "planetoid")
    if not os.path.exists(os.path.join(folder, "ind.cora.x")):
        print(f"compare_pyg_depth: skipped, no Cora in {folder}: set LIPGRAD_DATA or run tools/fetch_data cora")
        sys.exit(0)
    if not os.path.exists(args.lipgrad):
        print(f"compare_pyg_depth: no {args.lipgrad}; build it with tools/bench/build, or give --lipgrad")
        sys.exit(1)
    torch.set_num_threads(args.threads)
    x, y, edges, masks = compare_pyg.load_planetoid(folder, "cora")
    run = PygRun(x, y, edges, masks)
    times = {}
    for _ in range(args.rounds):
        run.epoch()
        for _ in range(args.epochs):
            train, epoch = run.epoch()
            times.setdefault("pyg", {"train": [], "epoch": []})["train"].append(train)
            times["pyg"]["epoch"].append(epoch)
        env = dict(os.environ, LIPGRAD_THREADS=str(args.threads))
        out = subprocess.run([args.lipgrad, str(args.epochs)], env=env, check=True, stdout=subprocess.PIPE,
                             text=True).stdout
        for name, by in json.loads(out).items():
            for what, values in by.items():
                times.setdefault(name, {}).setdefault(what, []).extend(values)
    median = {name: {what: statistics.median(t) for what, t in by.items()} for name, by in times.items()}
    print(f"torch {torch.__version__}, {args.threads} threads, 30 layers of 4 heads of 64 features")
    print(f"\n{'milliseconds, median':44} {'train step':>11} {'epoch':>9}")
    names = {"pyg": "PyTorch Geometric", "none": "lipgrad", "lipschitz": "lipgrad, LipschitzNorm",
             "products": "lipgrad, the matrix products alone"}
    for name, label in names.items():
        print(f"{label:44} {1e3 * median[name]['train']:11.1f} {1e3 * median[name]['epoch']:9.1f}")
    print()
    for theirs, mine, label in (("pyg", "none", "times faster than PyTorch Geometric"),
                                ("pyg", "lipschitz", "the same with LipschitzNorm"),
                                ("none", "products", "times the matrix products' time"),
                                ("lipschitz", "products", "the same with LipschitzNorm")):
        ratio = [median[theirs][what] / median[mine][what] for what in ("train", "epoch")]
        print(f"{label:44} {ratio[0]:11.2f} {ratio[1]:9.2f}")


if __name__ == "__main__":
    main()
