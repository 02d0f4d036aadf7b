#!/usr/bin/env python3
"""Times a graph attention layer of PyTorch Geometric, and of DGL, beside lipgrad's, forward and backward.

--layer gat, gatv2 or transformer (GATConv, GATv2Conv, TransformerConv; DGL has the first two): 4 heads of 32
features, 128 features in, f32, on random graphs of ogbn-arxiv's size (169,343 nodes, 1,166,243 edges made
symmetric; --nodes, --edges), gradients of the input and of all parameters. Rounds of the programs alternate, so
that a busy machine slows all. Memory is what each holds at its peak over what it held before the
layer: lipgrad by its own count, PyTorch by the process's peak resident size (Linux), which starts anew.

  cmake --preset release -DLIPGRAD_BUILD_BENCHMARKS=ON && cmake --build build/release
  python3 tools/bench/compare_pyg_layer.py

Needs python3 with torch and torch_geometric; dgl is compared where it is installed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import types

try:
    import torch
    from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv
except ImportError as error:
    print(f"compare_pyg_layer: skipped, {error}; it needs torch and torch_geometric")
    sys.exit(0)

try:
    # DGL's loader of data sets, which no layer needs, wants one exact version of PyTorch.
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
    import dgl
    from dgl.nn import GATConv as DglGat, GATv2Conv as DglGatv2
except ImportError:
    dgl = None


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def steps_of(forward, parameters, x, r, rounds):
    before, peak, done = resident(), [0], threading.Event()

    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    times = []
    for i in range(rounds + 1):
        start = time.perf_counter()
        forward(x).backward(r)
        if i > 0:
            times.append(time.perf_counter() - start)
        x.grad = None
        parameters.zero_grad(set_to_none=True)
    done.set()
    watcher.join()
    return {"layer_s": statistics.median(times), "layer_best_s": min(times), "peak_bytes": peak[0] - before}


def edges_of(nodes, edges, threads):
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    ends = torch.randint(nodes, (2, edges))
    return torch.cat([ends, ends.flip(0)], 1), torch.randn(nodes, 128, requires_grad=True), torch.randn(nodes, 128)


def pyg(layer, nodes, edges, rounds, threads):
    edge_index, x, r = edges_of(nodes, edges, threads)
    conv = {"gat": GATConv, "gatv2": GATv2Conv, "transformer": TransformerConv}[layer](128, 32, heads=4)
    return steps_of(lambda x: conv(x, edge_index), conv, x, r, rounds)


def with_dgl(layer, nodes, edges, rounds, threads):
    edge_index, x, r = edges_of(nodes, edges, threads)
    graph = dgl.add_self_loop(dgl.graph((edge_index[0], edge_index[1]), num_nodes=nodes))
    conv = {"gat": DglGat, "gatv2": DglGatv2}[layer](128, 32, 4)
    return steps_of(lambda x: conv(graph, x).flatten(1), conv, x, r, rounds)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=os.path.join(
        here, "../../build/release/tools/bench/lipgrad_bench_graph_layer"))
    parser.add_argument("--layer", choices=["gat", "gatv2", "transformer"], default="gat")
    parser.add_argument("--nodes", type=int, default=169343)
    parser.add_argument("--edges", type=int, default=1166243)
    parser.add_argument("--rounds", type=int, default=3, help="alternating")
    parser.add_argument("--steps", type=int, default=3, help="of each program a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    peers = {"PyG": pyg}
    if dgl and options.layer != "transformer":
        peers["DGL"] = with_dgl
    ours, theirs = [], {name: [] for name in peers}
    for _ in range(options.rounds):
        run = subprocess.run([options.program, options.layer, str(options.nodes), str(options.edges), str(options.steps)],
                             env={**os.environ, "LIPGRAD_THREADS": str(options.threads)},
                             capture_output=True, text=True, check=True)
        ours.append(json.loads(run.stdout))
        for name, run in peers.items():
            theirs[name].append(run(options.layer, options.nodes, options.edges, options.steps, options.threads))
    print(f"{options.layer}: {options.nodes} nodes, {ours[0]['edges']} edges, {options.threads} threads; medians of "
          f"{options.rounds} rounds of {options.steps}, the best in brackets")

    def figures(runs):
        return (statistics.median(r["layer_s"] for r in runs), min(r["layer_best_s"] for r in runs),
                max(r["peak_bytes"] for r in runs))

    for name, runs in [("lipgrad", ours), *theirs.items()]:
        middle, best, peak = figures(runs)
        print(f"{name:8} layer forward + backward {1e3 * middle:8.1f} ms ({1e3 * best:.1f}), "
              f"peak {peak / 1e6:8.0f} MB")
    a, a_best, a_peak = figures(ours)
    for name, runs in theirs.items():
        b, b_best, b_peak = figures(runs)
        print(f"{name} / lipgrad: time {b / a:.1f} ({b_best / a_best:.1f}), memory {b_peak / a_peak:.1f}")
    best = min(ours, key=lambda r: r["forward_s"] + r["backward_s"])
    print(f"attention: forward {1e3 * best['forward_s']:.1f} ms, compulsory bytes {best['forward_compulsory']:.0%} and "
          f"gathered {best['forward_gathered']:.0%} of the triad's {best['triad_gb_s']} GB/s; backward "
          f"{1e3 * best['backward_s']:.1f} ms, {best['backward_compulsory']:.0%} and {best['backward_gathered']:.0%}")


main()
