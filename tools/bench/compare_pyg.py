#!/usr/bin/env python3
"""Times the GAT of PyTorch Geometric's examples/gat.py on Cora beside lipgrad's.

The model (Velickovic et al. 2018): GATConv(1433, 8, heads 8) - ELU - GATConv(64, 7), dropout 0.6 on the
features and on the attention, row-normalised features, Adam with lr 5e-3 and weight decay 5e-4, full batch.

What is timed, with time.perf_counter, one epoch at a time:
  train   zero_grad, forward in training mode, cross-entropy on the 140 training nodes, backward, Adam step
  epoch   train, and then what the example's test() does: forward in evaluation mode without gradient, arg max,
          three accuracies. This is what the example itself times and prints as "time per epoch".
PyTorch Geometric runs with the example's dense input ("dense"), and with the features as a sparse matrix
("sparse"): dropout acts on the stored values, the first projection is a product of torch.sparse, in the
fastest of the forms listed in SPARSE_FORMS. Rounds of both programs alternate, so that a busy machine slows
both; the figures are medians over all epochs of all rounds but each round's warm-up.

  cmake --preset release -DLIPGRAD_BUILD_BENCHMARKS=ON && cmake --build build/release
  LIPGRAD_DATA=... python3 tools/bench/compare_pyg.py

Needs python3 with torch, torch_geometric, numpy and scipy.
"""
import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import time
import warnings

try:
    import numpy as np
    import scipy.sparse as sp
    import torch
    import torch.nn.functional as F
    import torch_geometric
    from torch_geometric.nn import GATConv
except ImportError as error:
    print(f"compare_pyg: skipped, {error}; it needs torch, torch_geometric, numpy and scipy")
    sys.exit(0)

warnings.filterwarnings("ignore", category=UserWarning, module="torch|.*compare_pyg")  # "in beta"
warnings.filterwarnings("ignore", category=DeprecationWarning)  # old names in the pickles
SPARSE_FORMS = ("csr", "coo", "csr-both")


def load_planetoid(folder, name):
    """Reads the eight original files ind.<name>.*; features are row-normalised, edges coalesced."""

    def part(suffix):
        with open(os.path.join(folder, f"ind.{name}.{suffix}"), "rb") as file:
            return pickle.load(file, encoding="latin1")

    test = np.loadtxt(os.path.join(folder, f"ind.{name}.test.index"), dtype=np.int64)
    allx, tx, ally, ty, graph = (part(s) for s in ("allx", "tx", "ally", "ty", "graph"))
    nodes = len(graph)
    x = sp.lil_matrix((nodes, allx.shape[1]), dtype=np.float32)
    x[: allx.shape[0]] = allx
    x[test] = tx
    x = sp.csr_matrix(x)
    x.sort_indices()
    sums = np.asarray(x.sum(1)).ravel()
    x = sp.csr_matrix(sp.diags(1 / np.maximum(sums, 1)) @ x, dtype=np.float32)
    y = np.zeros(nodes, dtype=np.int64)
    y[: ally.shape[0]] = ally.argmax(1)
    y[test] = ty.argmax(1)
    pairs = {(u, v) for u, row in graph.items() for v in row}
    pairs |= {(v, u) for u, v in pairs}
    edges = np.array(sorted(pairs), dtype=np.int64).T
    train = np.arange(part("y").shape[0])
    val = np.arange(len(train), len(train) + 500)
    masks = []
    for rows in (train, val, test):
        mask = torch.zeros(nodes, dtype=torch.bool)
        mask[torch.from_numpy(rows)] = True
        masks.append(mask)
    return x, torch.from_numpy(y), torch.from_numpy(edges).contiguous(), masks


class Gat(torch.nn.Module):
    """The model of examples/gat.py."""

    def __init__(self, features, classes):
        super().__init__()
        self.conv1 = GATConv(features, 8, 8, dropout=0.6)
        self.conv2 = GATConv(64, classes, heads=1, concat=False, dropout=0.6)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


class KeptTranspose(torch.autograd.Function):
    """x @ w with x sparse CSR, and x^T @ g in backward by the CSR of the transpose, built once."""

    @staticmethod
    def forward(ctx, values, w, x):
        ctx.x, ctx.values = x, values
        return torch.sparse.mm(x.matrix(values), w)

    @staticmethod
    def backward(ctx, g):
        return None, torch.sparse.mm(ctx.x.transposed(ctx.values), g), None


class SparseInput:
    """The stored values, and the structure they live in."""

    def __init__(self, x, form):
        self.form, self.shape = form, x.shape
        coo = x.tocoo()
        self.values = torch.from_numpy(x.data)
        self.index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
        self.ptr, self.col = torch.from_numpy(x.indptr), torch.from_numpy(x.indices)
        order = np.lexsort((coo.row, coo.col))
        self.order = torch.from_numpy(order)
        self.t_col = torch.from_numpy(coo.row[order].astype(np.int32))
        counts = np.bincount(coo.col, minlength=x.shape[1])
        self.t_ptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))

    def matrix(self, values):
        if self.form == "coo":
            return torch.sparse_coo_tensor(self.index, values, self.shape, is_coalesced=True,
                                           check_invariants=False)
        return torch.sparse_csr_tensor(self.ptr, self.col, values, self.shape, check_invariants=False)

    def transposed(self, values):
        return torch.sparse_csr_tensor(self.t_ptr, self.t_col, values[self.order],
                                       (self.shape[1], self.shape[0]), check_invariants=False)


class SparseLinear(torch.nn.Module):
    def __init__(self, dense):
        super().__init__()
        self.weight = dense.weight

    def forward(self, x):
        values = F.dropout(x.values, p=0.6, training=self.training)
        if x.form == "csr-both":
            return KeptTranspose.apply(values, self.weight.t(), x)
        return torch.sparse.mm(x.matrix(values), self.weight.t())


class SparseGat(Gat):
    """The same, with the product of conv1 taken from a sparse matrix: GATConv gets projected features."""

    def __init__(self, features, classes):
        super().__init__(features, classes)
        self.project = SparseLinear(self.conv1.lin)
        self.conv1.lin = torch.nn.Identity()

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(self.project(x), edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


class PygRun:
    def __init__(self, x, y, edges, masks, form):
        torch.manual_seed(0)
        kind = Gat if form == "dense" else SparseGat
        self.x = torch.from_numpy(x.toarray()) if form == "dense" else SparseInput(x, form)
        self.model = kind(x.shape[1], int(y.max()) + 1)
        self.y, self.edges, self.masks = y, edges, masks
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.005, weight_decay=5e-4)
        self.best_val, self.test_acc = 0, 0

    def train(self):
        self.model.train()
        self.optimizer.zero_grad()
        out = self.model(self.x, self.edges)
        loss = F.cross_entropy(out[self.masks[0]], self.y[self.masks[0]])
        loss.backward()
        self.optimizer.step()
        return float(loss)

    @torch.no_grad()
    def test(self):
        self.model.eval()
        pred = self.model(self.x, self.edges).argmax(dim=-1)
        return [int((pred[m] == self.y[m]).sum()) / int(m.sum()) for m in self.masks]

    def round(self, epochs, warm_up):
        trains, alls = [], []
        for epoch in range(epochs + warm_up):
            start = time.perf_counter()
            self.train()
            middle = time.perf_counter()
            _, val, test = self.test()
            end = time.perf_counter()
            if val > self.best_val:
                self.best_val, self.test_acc = val, test
            if epoch >= warm_up:
                trains.append(middle - start)
                alls.append(end - start)
        return {"train": trains, "epoch": alls}


def lipgrad_round(command, threads, epochs, warm_up):
    """One round of lipgrad's program: {"dense": {"train": [...], "epoch": [...]}, "sparse": ...}."""
    env = dict(os.environ, LIPGRAD_THREADS=str(threads))
    out = subprocess.run([command, f"--epochs={epochs}", f"--warm-up={warm_up}"], env=env, check=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description="GAT on Cora: PyTorch Geometric beside lipgrad")
    here = os.path.dirname(os.path.abspath(__file__))
    usual = os.path.join(here, "../../build/release/tools/bench/lipgrad_bench_gat_epoch")
    parser.add_argument("--lipgrad", default=os.path.normpath(usual),
                        help="lipgrad's program (default: %(default)s); 'none': time PyG alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30, help="timed epochs a round")
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--json", help="also write all figures to this file")
    args = parser.parse_args()

    data = os.environ.get("LIPGRAD_DATA", os.path.expanduser("~/.cache/lipgrad"))
    folder = os.path.join(data, "planetoid")
    if not os.path.exists(os.path.join(folder, "ind.cora.x")):
        print(f"compare_pyg: skipped, no Cora in {folder}: set LIPGRAD_DATA or run tools/fetch_data cora")
        sys.exit(0)
    if args.lipgrad == "none":
        args.lipgrad = None
    elif not os.path.exists(args.lipgrad):
        print(f"compare_pyg: no {args.lipgrad}; build it with -DLIPGRAD_BUILD_BENCHMARKS=ON, or give "
              "--lipgrad")
        sys.exit(1)
    torch.set_num_threads(args.threads)
    x, y, edges, masks = load_planetoid(folder, "cora")
    print(f"torch {torch.__version__}, torch_geometric {torch_geometric.__version__}, {args.threads} threads; "
          f"Cora: {x.shape[0]} nodes, {edges.shape[1]} edges, {x.shape[1]} features, {x.nnz} of them set")

    runs = {form: PygRun(x, y, edges, masks, form) for form in ("dense",) + SPARSE_FORMS}
    times = {}

    def add(name, result):
        for what in ("train", "epoch"):
            times.setdefault(name, {}).setdefault(what, []).extend(result[what])

    for _ in range(args.rounds):
        for form, run in runs.items():
            add(f"pyg {form}", run.round(args.epochs, args.warm_up))
        if args.lipgrad:
            for form, result in lipgrad_round(args.lipgrad, args.threads, args.epochs, args.warm_up).items():
                add(f"lipgrad {form}", result)

    median = {name: {what: statistics.median(t) for what, t in by.items()} for name, by in times.items()}
    print(f"\n{'milliseconds, median':24} {'train step':>11} {'train + test':>13}")
    for name, by in median.items():
        print(f"{name:24} {1e3 * by['train']:11.2f} {1e3 * by['epoch']:13.2f}")
    if args.lipgrad:
        best = min(SPARSE_FORMS, key=lambda form: median[f"pyg {form}"]["epoch"])
        print(f"\n{'times faster than PyG':48} {'train step':>11} {'train + test':>13}")
        for theirs, mine in (("dense", "sparse"), ("dense", "dense"), (best, "sparse")):
            a, b = median[f"pyg {theirs}"], median[f"lipgrad {mine}"]
            label = f"lipgrad {mine} input against PyG {theirs} input"
            print(f"{label:48} {a['train'] / b['train']:11.1f} {a['epoch'] / b['epoch']:13.1f}")
    for form, run in runs.items():
        print(f"pyg {form}: test accuracy {run.test_acc:.3f} at the best validation accuracy "
              f"{run.best_val:.3f} so far")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"median": median, "times": times}, file)


if __name__ == "__main__":
    main()
