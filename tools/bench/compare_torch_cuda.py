#!/usr/bin/env python3
"""PyTorch on the same GPU beside what `lipgrad rates --device cuda --json FILE` measured.

usage: compare_torch_cuda.py RATES.json      Needs python3 with torch (a build that sees the GPU).
"""
import json
import sys
import time


def measure(torch, work, seconds=0.1):
    work()
    torch.cuda.synchronize()

    def batch(count):
        begin = time.perf_counter()
        for _ in range(count):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    count = max(1, min(10000, int(seconds / 5 / max(batch(1), 1e-7))))
    return sorted(batch(count) for _ in range(5))[2]


def works(torch, rows):
    """The operations by the names that lipgrad gives them, forward and backward."""
    F = torch.nn.functional
    cuda = torch.device("cuda")
    x = torch.randn(rows, 1024, device=cuda)
    y = x.clone()
    scale, shift = torch.ones(1024, device=cuda), torch.zeros(1024, device=cuda)
    labels = torch.zeros(rows, dtype=torch.int64, device=cuda)
    order = torch.randperm(rows, device=cuda)
    yield "copy", x.clone
    yield "add", lambda: x + y

    def both(name, f, *inputs):
        yield name, lambda: f(*inputs)
        watched = [t.detach().clone().requires_grad_() for t in inputs]
        out = f(*watched)
        g = torch.ones_like(out)
        yield name + ", backward", lambda: torch.autograd.grad(out, watched, g, retain_graph=True)

    yield from both("mul, backward into both", lambda a, b: a * b, x, y)
    yield from both("gelu", F.gelu, x)
    yield "add a row", lambda: x + shift
    yield "sum", x.sum
    yield "sum of rows", lambda: x.sum(0)
    yield "sum of columns", lambda: x.sum(1)
    yield from both("softmax", lambda a: torch.softmax(a, -1), x)
    yield from both("log_softmax", lambda a: torch.log_softmax(a, -1), x)
    yield from both("layer_norm", lambda a, w, b: F.layer_norm(a, (1024,), w, b), x, scale, shift)
    yield from both("l2_normalize", lambda a: F.normalize(a, dim=-1), x)
    yield from both("weighted_residual", lambda a, f, s: a + s * f, x, y, scale)
    yield "transpose", lambda: x.t().contiguous()
    yield from both("dropout", lambda a: F.dropout(a, 0.5), x)
    yield from both("cross_entropy", lambda a: F.cross_entropy(a, labels), x)
    yield from both("gather", lambda a: a[order], x)
    weight = torch.nn.Parameter(x.clone())
    weight.grad = x.clone()
    adam = torch.optim.Adam([weight], lr=1e-3, fused=True)
    yield "Adam", adam.step
    size = rows // 8
    for dtype, name in ((torch.float32, "f32"), (torch.float64, "f64")):
        a = torch.randn(size, size, dtype=dtype, device=cuda)
        b = a.clone()
        label = f"product {size} x {size}, {name}"
        yield label, lambda a=a, b=b: a @ b
        if dtype == torch.float32:

            def tf32(a=a, b=b):
                torch.backends.cuda.matmul.allow_tf32 = True
                a @ b
                torch.backends.cuda.matmul.allow_tf32 = False

            yield label + " (tf32)", tf32
    tall = torch.randn(4 * size, 768, device=cuda)
    w, bias = torch.randn(3072, 768, device=cuda), torch.zeros(3072, device=cuda)
    yield f"linear {4 * size} x 768 -> 3072, gelu", lambda: F.gelu(F.linear(tall, w, bias))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        import torch
    except ImportError:
        sys.exit("compare_torch_cuda.py needs python3 with torch")
    if not torch.cuda.is_available():
        sys.exit("compare_torch_cuda.py: this PyTorch sees no GPU")
    with open(sys.argv[1]) as file:
        ours = json.load(file)
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"{'what':34} {'lipgrad ms':>11} {'PyTorch ms':>11} {'times faster':>12}")
    for name, work in works(torch, ours["rows"]):
        if name not in ours["rates"]:
            continue
        mine, theirs = ours["rates"][name]["seconds"], measure(torch, work)
        print(f"{name:34} {1e3 * mine:11.4f} {1e3 * theirs:11.4f} {theirs / mine:12.2f}")


if __name__ == "__main__":
    main()
