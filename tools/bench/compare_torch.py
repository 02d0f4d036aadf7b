#!/usr/bin/env python3
"""Times lipgrad and PyTorch on the same work, in turn, and prints the medians and their ratio.

usage: compare_torch.py [--bench build/release/tools/bench/lipgrad_bench] [--threads 2] [--rounds 5]

 - a linear layer 784 x 768 -> 3072 in f32, forward and the gradients of input, weight and bias;
 - the same with gelu;
 - chains of 500 000 ops on one scalar, forward and backward: x * constant, and x * y with a leaf y.

Needs a python3 with torch; without it, says so and ends.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    print("compare_torch: skipped, this python3 has no torch")
    sys.exit(0)

ROWS, IN, OUT, OPS = 784, 768, 3072, 500_000


def linear_step(gelu):
    x = torch.randn(ROWS, IN, requires_grad=True)
    w = torch.randn(OUT, IN, requires_grad=True)
    b = torch.randn(OUT, requires_grad=True)
    g = torch.randn(ROWS, OUT)

    def run():
        y = torch.nn.functional.linear(x, w, b)
        if gelu:
            y = torch.nn.functional.gelu(y)
        torch.autograd.grad(y, [x, w, b], g)

    return run


def chain(leaf_factor):
    start = torch.ones((), requires_grad=True)
    factor = torch.full((), 0.9999999, requires_grad=True) if leaf_factor else 0.9999999

    def run():
        x = start
        for _ in range(OPS):
            x = x * factor
        torch.autograd.grad(x, [start])

    return run


def median_ms(run, times):
    run()
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken)


def lipgrad_ms(bench, name, times):
    out = subprocess.run(
        [bench, f"--benchmark_filter=^{name}/real_time$", "--benchmark_format=json",
         f"--benchmark_repetitions={times}", "--benchmark_report_aggregates_only=true"],
        check=True, capture_output=True, text=True).stdout
    for entry in json.loads(out)["benchmarks"]:
        if times == 1 or entry.get("aggregate_name") == "median":
            return entry["real_time"] * {"us": 1e-3, "ms": 1.0, "ns": 1e-6}[entry["time_unit"]]
    raise RuntimeError(f"{bench} has no benchmark {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/release/tools/bench/lipgrad_bench")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if not os.access(args.bench, os.X_OK):
        sys.exit(f"compare_torch: no program {args.bench}; "
                 "configure with -DLIPGRAD_BUILD_BENCHMARKS=ON and build lipgrad_bench")
    torch.set_num_threads(args.threads)
    cases = [
        ("linear 784 x 768 -> 3072", f"linear_step_f32/784/768/3072/0/{args.threads}",
         linear_step(False), 5),
        ("linear with gelu", f"linear_step_f32/784/768/3072/4/{args.threads}", linear_step(True), 5),
        (f"chain of {OPS} x * constant", f"tape_chain/{OPS}/0", chain(False), 1),
        (f"chain of {OPS} x * y", f"tape_chain/{OPS}/1", chain(True), 1),
    ]
    print(f"torch {torch.__version__}, {args.threads} threads, medians of {args.rounds} rounds, "
          "forward and backward")
    for title, name, run, times in cases:
        ours, theirs = [], []
        for _ in range(args.rounds):
            theirs.append(median_ms(run, times))
            ours.append(lipgrad_ms(args.bench, name, times))
        t, o = statistics.median(theirs), statistics.median(ours)
        line = f"{title:32} torch {t:9.2f} ms   lipgrad {o:9.2f} ms   torch / lipgrad {t / o:6.2f}"
        if "chain" in title:
            line += f"   {o * 1e3 / OPS:.3f} us an op"
        print(line, flush=True)


if __name__ == "__main__":
    main()
