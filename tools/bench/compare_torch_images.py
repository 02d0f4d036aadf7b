#!/usr/bin/env python3
"""Times training steps of models of images in lipgrad and in PyTorch, in turn: medians of rounds, and their ratio.

ViT-Ti/16 on batches of 16, Swin-T, CSwin-T and LipsFormer with the windows of either on batches of 8, images of
224 x 224, f32: forward, cross entropy, backward, AdamW (fused in PyTorch). ViT and Swin are timm's; CSwin and
LipsFormer are written here with PyTorch's fused attention, and keep what the published code of LipsFormer computes
again, so that they are as fast as they get. Each round of
each side is a process of its own; memory is its peak resident size from the building of the model on (Linux).

  cmake --preset release -DLIPGRAD_BUILD_BENCHMARKS=ON && cmake --build build/release
  python3 tools/bench/compare_torch_images.py

Needs a python3 with torch and timm; without them, says so and ends.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import timm
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print(f"compare_torch_images: skipped, {error}; it needs torch and timm")
    sys.exit(0)

# Makers, and images of a step.
MODELS = {"vit_ti": (lambda: timm.create_model("vit_tiny_patch16_224"), 16),
          "swin_t": (lambda: timm.create_model("swin_tiny_patch4_window7_224"), 8),
          "lipsformer_swin_t": (lambda: LipsFormer(), 8), "cswin_t": (lambda: CSwin(lips=False), 8),
          "lipsformer_cswin_t": (lambda: CSwin(lips=True), 8)}


class CenterNorm(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.scale = features / (features - 1)

    def forward(self, x):
        return torch.addcmul(self.bias, self.scale * (x - x.mean(-1, keepdim=True)), self.weight)


def windows_of(x, w):
    b, h, width, c = x.shape
    return x.view(b, h // w, w, width // w, w, c).transpose(2, 3).reshape(-1, w * w, c)


class LipsFormerBlock(nn.Module):
    def __init__(self, c, heads, side, shifted, blocks, window=7):
        super().__init__()
        self.heads, self.side, self.window = heads, side, window
        self.shift = window // 2 if shifted and side > window else 0
        self.depthwise = nn.ModuleList([nn.Conv2d(c, c, 7, padding=3, groups=c) for _ in range(2)])
        self.pointwise = nn.Conv2d(c, c, 1)
        self.scales = nn.ParameterList([nn.Parameter(torch.full((c,), 1 / blocks)) for _ in range(4)])
        self.norm1, self.norm2 = CenterNorm(c), CenterNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        offset = place[:, :, None] - place[:, None, :] + window - 1
        self.register_buffer("index", (offset[0] * (2 * window - 1) + offset[1]).flatten())
        mask = None
        if self.shift:
            line = torch.zeros(side, dtype=torch.long)
            line[-window:-self.shift], line[-self.shift:] = 1, 2
            region = windows_of((3 * line[:, None] + line[None, :]).view(1, side, side, 1).float(), window).squeeze(-1)
            mask = torch.where(region[:, :, None] == region[:, None, :], 0.0, -100.0)
        self.register_buffer("mask", mask)

    def attention(self, x):
        b, side, w, c = x.shape[0], self.side, self.window, x.shape[-1]
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        tokens = windows_of(x, w)
        q, k, v = self.qkv(tokens).view(-1, w * w, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        bias = self.table[self.index].view(w * w, w * w, self.heads).permute(2, 0, 1)[None]
        if self.mask is not None:
            bias = (bias + self.mask[:, None]).repeat(b, 1, 1, 1)
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=10.0)
        y = self.proj(y.transpose(1, 2).reshape(-1, w * w, c))
        y = y.view(b, side // w, side // w, w, w, c).transpose(2, 3).reshape(b, side, side, c)
        return torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y

    def forward(self, x):
        y = functional.gelu(self.depthwise[0](x.permute(0, 3, 1, 2)))
        x = x + self.scales[0] * functional.gelu(self.pointwise(y)).permute(0, 2, 3, 1)
        x = x + self.scales[1] * functional.gelu(self.depthwise[1](x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)
        x = self.norm1(x + self.scales[2] * self.attention(x))
        return self.norm2(x + self.scales[3] * self.mlp(x))


class Merge(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm, self.reduction = CenterNorm(4 * c), nn.Linear(4 * c, 2 * c, bias=False)

    def forward(self, x):
        b, h, w, c = x.shape
        x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 4, 2, 5).reshape(b, h // 2, w // 2, 4 * c)
        return self.reduction(self.norm(x))


class LipsFormer(nn.Module):
    def __init__(self, width=96, depths=(2, 2, 6, 2), heads=(3, 6, 12, 24), classes=1000):
        super().__init__()
        self.patches, self.patch_norm = nn.Conv2d(3, width, 4, 4), CenterNorm(width)
        stages, side = [], 56
        for i, depth in enumerate(depths):
            stages += [LipsFormerBlock(width, heads[i], side, j % 2 == 1, sum(depths)) for j in range(depth)]
            if i + 1 < len(depths):
                stages.append(Merge(width))
                width, side = 2 * width, side // 2
        self.stages, self.norm, self.head = nn.Sequential(*stages), CenterNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        x = self.stages(self.patch_norm(self.patches(images).permute(0, 2, 3, 1)))
        return self.head(self.norm(x).mean((1, 2)))


class Stripes(nn.Module):
    """Attention and LePE of (windows, height * width, 3, heads, d)."""

    def __init__(self, c, heads, height, width, lips):
        super().__init__()
        self.heads, self.height, self.width, self.lips = heads, height, width, lips
        self.get_v = nn.Conv2d(c, c, 3, padding=1, groups=c)

    def forward(self, qkv):
        b, h, w, _, c = qkv.shape
        sh, sw = self.height, self.width
        qkv = qkv.view(b, h // sh, sh, w // sw, sw, 3, c).permute(5, 0, 1, 3, 2, 4, 6).reshape(3, -1, sh * sw, c)
        v = qkv[2].view(-1, sh, sw, c).permute(0, 3, 1, 2)
        lepe = self.get_v(v).permute(0, 2, 3, 1).reshape(-1, sh * sw, c)
        q, k, v = qkv.view(3, -1, sh * sw, self.heads, c // self.heads).transpose(2, 3)
        if self.lips:
            q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        y = functional.scaled_dot_product_attention(q, k, v, scale=12.0 if self.lips else None)
        y = y.transpose(1, 2).reshape(-1, sh * sw, c) + lepe
        if self.lips:
            y = y / self.heads ** 0.5
        return y.view(b, h // sh, w // sw, sh, sw, c).transpose(2, 3).reshape(b, h, w, c)


class CSwinBlock(nn.Module):
    def __init__(self, c, heads, side, split, last, lips):
        super().__init__()
        self.lips, parts = lips, 1 if last else 2
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.attns = nn.ModuleList([Stripes(c // parts, heads // parts, h, w, lips) for h, w in
                                    ([(side, side)] if last else [(side, split), (split, side)])])
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))
        self.norm1, self.norm2 = [CenterNorm(c) if lips else nn.LayerNorm(c) for _ in range(2)]
        if lips:
            self.depthwise = nn.ModuleList([nn.Conv2d(c, c, 7, padding=3, groups=c) for _ in range(2)])
            self.pointwise = nn.Conv2d(c, c, 1)
            self.scales = nn.ParameterList([nn.Parameter(torch.full((c,), 0.2)) for _ in range(4)])

    def attention(self, x):
        b, h, w, c = x.shape
        parts = len(self.attns)
        qkv = self.qkv(x).view(b, h, w, 3, parts, c // parts)
        return self.proj(torch.cat([attend(qkv[..., i, :]) for i, attend in enumerate(self.attns)], -1))

    def forward(self, x):
        if not self.lips:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        y = functional.gelu(self.depthwise[0](x.permute(0, 3, 1, 2)))
        x = x + self.scales[0] * functional.gelu(self.pointwise(y)).permute(0, 2, 3, 1)
        x = x + self.scales[1] * functional.gelu(self.depthwise[1](x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)
        x = x + self.scales[2] * self.attention(x)
        return self.norm2(x + self.scales[3] * self.mlp(x))


class ConvNorm(nn.Module):
    def __init__(self, channels, features, kernel, stride, padding, lips):
        super().__init__()
        self.conv = nn.Conv2d(channels, features, kernel, stride, padding)
        self.norm = CenterNorm(features) if lips else nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class CSwin(nn.Module):
    def __init__(self, lips, width=64, depths=(1, 2, 21, 1), heads=(2, 4, 8, 16), splits=(1, 2, 7, 7), classes=1000):
        super().__init__()
        stages, side = [ConvNorm(3, width, *((4, 4, 0) if lips else (7, 4, 2)), lips)], 56
        for i, depth in enumerate(depths):
            last = i + 1 == len(depths)
            stages += [CSwinBlock(width, heads[i], side, splits[i], last, lips) for _ in range(depth)]
            if not last:
                stages.append(ConvNorm(width, 2 * width, *((2, 2, 0) if lips else (3, 2, 1)), lips))
                width, side = 2 * width, side // 2
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(width, classes)
        self.norm = nn.Identity() if lips else nn.LayerNorm(width)

    def forward(self, images):
        return self.head(self.norm(self.stages(images.permute(0, 2, 3, 1))).mean((1, 2)))


def peak_resident():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def torch_step(model, steps, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    make, batch = MODELS[model]
    images, labels = torch.randn(batch, 3, 224, 224), torch.arange(batch) * 37 % 1000
    functional.linear(torch.ones(64, 64), torch.ones(64, 64))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = peak_resident()
    net = make()
    net.train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    taken = []
    for i in range(steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        if i > 0:
            taken.append(time.perf_counter() - start)
    print(json.dumps({"step_s": statistics.median(taken), "best_s": min(taken), "peak_bytes": peak_resident() - before,
                      "parameters": sum(p.numel() for p in net.parameters())}))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=os.path.join(
        here, "../../build/release/tools/bench/lipgrad_bench_image_step"))
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3, help="alternating")
    parser.add_argument("--steps", type=int, default=5, help="of each a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.torch:
        return torch_step(o.torch, o.steps, o.threads)
    print(f"torch {torch.__version__}, timm {timm.__version__}, {o.threads} threads; training steps, medians of "
          f"{o.rounds} rounds of {o.steps}")
    for model in o.models:
        ours, theirs = [], []
        batch = MODELS[model][1]
        for _ in range(o.rounds):
            for runs, command in (
                    (ours, [o.program, model, str(batch), str(o.steps)]),
                    (theirs, [sys.executable, __file__, "--torch", model, "--steps", str(o.steps), "--threads",
                              str(o.threads)])):
                run = subprocess.run(command, env={**os.environ, "LIPGRAD_THREADS": str(o.threads)},
                                     capture_output=True, text=True)
                if run.returncode != 0:
                    sys.exit(f"compare_torch_images: {' '.join(command)} failed: {run.stderr.strip()}")
                runs.append(json.loads(run.stdout.splitlines()[-1]))

        def middle(runs, key):
            return statistics.median(r[key] for r in runs)

        mine, other = middle(ours, "step_s"), middle(theirs, "step_s")
        memory, other_memory = middle(ours, "peak_bytes"), middle(theirs, "peak_bytes")
        print(f"{model:18} batch {batch:2}   lipgrad {1e3 * mine:7.0f} ms, {memory / 1e6:5.0f} MB   PyTorch "
              f"{1e3 * other:7.0f} ms, {other_memory / 1e6:5.0f} MB   time x {other / mine:.2f}, memory x "
              f"{other_memory / memory:.2f}   {middle(ours, 'rate') / 1e9:.1f} of OpenBLAS's "
              f"{middle(ours, 'openblas_rate') / 1e9:.1f} G multiply-adds/s, {middle(ours, 'share'):.0%}", flush=True)


main()
