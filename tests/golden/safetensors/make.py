#!/usr/bin/env python3
"""Writes the files of this folder with safetensors (0.8.0 wrote those that are kept) and torch."""
import torch
from safetensors.torch import save_file

tensors = {
    "f32": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4,
    "f64": torch.tensor([0.1, -1e300, float("inf")], dtype=torch.float64),
    "f16": torch.tensor([1.0, -2.5, 65504.0, 2.0**-24, -0.0, float("inf"), 1 / 3], dtype=torch.float16),
    "bf16": torch.tensor([[1.0, -2.5], [3e38, 1e-40]], dtype=torch.bfloat16),
    "i64": torch.tensor(-(2**62)),
    "i32": torch.tensor([-7, 2**31 - 1], dtype=torch.int32),
    "i16": torch.tensor([-32768, 7], dtype=torch.int16),
    "i8": torch.tensor([[-128], [127]], dtype=torch.int8),
    "u8": torch.tensor([0, 1, 255], dtype=torch.uint8),
    "u16": torch.tensor([65535], dtype=torch.uint16),
    "u32": torch.tensor([2**32 - 1], dtype=torch.uint32),
    "u64": torch.tensor([2**64 - 1], dtype=torch.uint64),
    "bool": torch.tensor([True, False, True]),
    "c64": torch.tensor([1 + 2j]),
    "f8": torch.tensor([1.0, 2.0, 3.0]).to(torch.float8_e4m3fn),
    "empty": torch.zeros(0, 4),
    "a/b.ö \"x\"": torch.ones(1),
}
save_file(tensors, "dtypes.safetensors", {"format": "pt", "note": "line\nbreak"})
# What lipgrad writes must be, but for the padding of its header, what the official writer makes.
same = {name: tensors[name] for name in ("f32", "f64", "i64", "i32", "u8", "empty")}
save_file(same, "plain.safetensors", {"format": "pt"})
