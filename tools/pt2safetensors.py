#!/usr/bin/env python3
"""pt2safetensors.py FROM TO: turns the tensors of a .pt or .pth file into a .safetensors file.

FROM holds a state dict, or a dict with one under "model", "model_ema", "state_dict" or "net"
(--key NAME: another). A prefix "module." of all names is taken off. Only tensors are loaded, no
code is run (weights_only). Needs torch and safetensors.
"""
import argparse

import torch
from safetensors.torch import save_file


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--key")
    arguments = parser.parse_args()
    state = torch.load(arguments.source, map_location="cpu", weights_only=True)
    for key in [arguments.key] if arguments.key else ["model", "state_dict", "model_ema", "net"]:
        if isinstance(state.get(key), dict):
            state = state[key]
            break
    other = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if other or not state:
        raise SystemExit(f"{arguments.source}: not tensors: {', '.join(map(str, other))}; give --key")
    if all(name.startswith("module.") for name in state):
        state = {name[len("module.") :]: value for name, value in state.items()}
    # Copies: tensors that share memory are refused by save_file.
    state = {name: value.detach().clone().contiguous() for name, value in state.items()}
    save_file(state, arguments.target, {"format": "pt"})
    print(f"{arguments.target}: {len(state)} tensors")


if __name__ == "__main__":
    main()
