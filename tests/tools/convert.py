#!/usr/bin/env python3
"""Models of other libraries with random weights, for convert.sh.

convert.py make CASE FOLDER         writes FOLDER/weights.safetensors, the input (x.npy of images, or
                                    graph.npz), and the logits, expected.npy (f32) and expected64.npy
                                    (f64). Status 77, with what is missing, where a library is.
convert.py compare GOT EXPECTED LIMIT   prints the largest difference; status 1 if it is above LIMIT
"""
import sys
import warnings

warnings.filterwarnings("ignore")


def images(model, side):
    import numpy as np
    import torch

    x = torch.randn(2, 3, side, side)
    np.save("x.npy", x.numpy())
    np.save("x64.npy", x.double().numpy())
    return model, (x,)


def timm_model(name):
    import timm

    return images(timm.create_model(name, pretrained=False), 224)


def graph_model(conv, heads, second_heads, **options):
    import numpy as np
    import torch
    import torch_geometric.nn as pyg

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = getattr(pyg, conv)
            self.conv = torch.nn.ModuleList(
                [
                    layer(12, 8, heads=heads, **options),
                    layer(8 * heads, 5, heads=second_heads, concat=False, **options),
                ]
            )

        def forward(self, x, edges):
            return self.conv[1](torch.nn.functional.elu(self.conv[0](x, edges)), edges)

    n = 60
    x = torch.randn(n, 12)
    pairs = torch.randint(0, n - 5, (2, 150))  # the last nodes have no edges
    pairs = pairs[:, pairs[0] != pairs[1]]
    edges = torch.unique(torch.cat([pairs, pairs.flip(0)], 1), dim=1)
    masks = np.zeros((1, n), bool)
    np.savez(
        "graph.npz",
        node_features=x.numpy(),
        node_labels=np.arange(n) % 5,
        edges=edges.t().numpy(),
        train_masks=masks + (np.arange(n) < 20),
        val_masks=masks + (np.arange(n) // 20 == 1),
        test_masks=masks + (np.arange(n) >= 40),
    )
    return Net(), (x, edges)


CASES = {
    "timm-vit": lambda: timm_model("vit_tiny_patch16_224"),
    "timm-swin": lambda: timm_model("swin_tiny_patch4_window7_224"),
    "pyg-gat": lambda: graph_model("GATConv", 4, 3),
    "pyg-gatv2": lambda: graph_model("GATv2Conv", 4, 3),
    "pyg-transformer": lambda: graph_model("TransformerConv", 4, 3),
}


def make(case, folder):
    import os

    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    import numpy as np
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(7)
    model, inputs = CASES[case]()
    with torch.no_grad():
        for parameter in model.parameters():  # zeros and ones would hide mistakes
            parameter += 0.05 * torch.randn_like(parameter)
    model.eval()
    save_file({name: t.contiguous() for name, t in model.state_dict().items()}, "weights.safetensors")
    with torch.no_grad():
        np.save("expected.npy", model(*inputs).numpy())
        wide = [t.double() if t.is_floating_point() else t for t in inputs]
        np.save("expected64.npy", model.double()(*wide).numpy())


def compare(got, expected, limit):
    import numpy as np

    a, b = np.load(got), np.load(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        sys.exit(f"{a.dtype} {a.shape}, expected {b.dtype} {b.shape}")
    worst = float(np.abs(a - b).max())
    print(f"differs by {worst:.2e} of {float(np.abs(b).max()):.2e}")
    sys.exit(not worst <= float(limit))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        try:
            make(*sys.argv[2:])
        except ImportError as error:
            print(f"no {error.name}")
            sys.exit(77)
    else:
        compare(*sys.argv[2:])
