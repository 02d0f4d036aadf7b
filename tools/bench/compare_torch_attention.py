#!/usr/bin/env python3
"""Times attention within windows in lipgrad and in PyTorch, in turn: medians of rounds, and their ratio.

64 windows of 49 tokens, 3 heads of 32 features (--windows and so on), f32, forward and backward to the packed
projection qkv (B, T, 3, H, D), as layers hold it; PyTorch by scaled_dot_product_attention and by the operations
that Swin's published code runs. With a learned bias (H, T, T) and its gradient too, and with cosine scores.

  cmake --preset release -DLIPGRAD_BUILD_BENCHMARKS=ON && cmake --build build/release
  python3 tools/bench/compare_torch_attention.py

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
    from torch.nn import functional
except ImportError:
    print("compare_torch_attention: skipped, this python3 has no torch")
    sys.exit(0)


def fused(q, k, v, bias, cosine):
    if cosine:
        q, k = functional.normalize(q, dim=-1) * 10, functional.normalize(k, dim=-1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0 if cosine else None)


def published(q, k, v, bias, cosine):
    if cosine:
        q, k = functional.normalize(q, dim=-1) * 10, functional.normalize(k, dim=-1)
    else:
        q = q * q.shape[-1] ** -0.5
    scores = q @ k.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1) @ v


def torch_times(attention, o, biased, cosine):
    torch.manual_seed(0)
    qkv = torch.randn(o.windows, o.tokens, 3, o.heads, o.features, requires_grad=True)
    bias = torch.randn(1, o.heads, o.tokens, o.tokens, requires_grad=True) if biased else None
    r = torch.randn(o.windows, o.tokens, o.heads * o.features)
    taken = []
    for i in range(o.steps + 3):
        start = time.perf_counter()
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = attention(q, k, v, bias, cosine).transpose(1, 2).reshape(r.shape)
        torch.autograd.grad(y, [qkv] + ([bias] if biased else []), r)
        if i >= 3:
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=os.path.join(
        here, "../../build/release/tools/bench/lipgrad_bench_window_attention"))
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=49)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5, help="alternating")
    parser.add_argument("--steps", type=int, default=30, help="of each a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    ours, theirs = [], []
    for _ in range(o.rounds):
        run = subprocess.run(
            [o.program] + [str(n) for n in (o.windows, o.heads, o.tokens, o.features, o.steps)],
            env={**os.environ, "LIPGRAD_THREADS": str(o.threads)}, capture_output=True, text=True, check=True)
        ours.append(json.loads(run.stdout))
        theirs.append({(cosine, biased, way.__name__): torch_times(way, o, biased, cosine)
                       for cosine in (False, True) for biased in (False, True) for way in (fused, published)})
    print(f"torch {torch.__version__}, {o.threads} threads; {o.windows} windows, {o.heads} heads, {o.tokens} tokens, "
          f"{o.features} features, forward and backward, medians of {o.rounds} rounds of {o.steps}, ms")
    for cosine in (False, True):
        for biased in (False, True):
            name = ("cosine" if cosine else "dot") + ("_bias" if biased else "")
            mine = statistics.median(r[name]["both_s"] for r in ours)
            forward = statistics.median(r[name]["forward_s"] for r in ours)
            sdpa, plain = (statistics.median(r[cosine, biased, way] for r in theirs) for way in ("fused", "published"))
            print(f"{name:12} lipgrad {1e3 * mine:7.2f} (forward {1e3 * forward:.2f})   "
                  f"scaled_dot_product_attention {1e3 * sdpa:7.2f}, x {sdpa / mine:.2f}   "
                  f"published code {1e3 * plain:7.2f}, x {plain / mine:.2f}", flush=True)


if __name__ == "__main__":
    main()
