#!/usr/bin/env python3
"""Writes small JPEG and PNG files of every kind, and pillow.npz: what Pillow decodes them to, and
what it resizes an image to.

Needs Pillow and numpy. FILE/rgb holds convert("RGB") of each file (grey.jpg also convert("L") as
grey.jpg/grey). resize/image is a random smooth image with noise, resize/<n>/box its part (left, top,
right, bottom), resize/<n>/filter 2 (bilinear) or 3 (bicubic), resize/<n>/out the result.
"""
import os

import numpy as np
from PIL import Image

here = os.path.dirname(os.path.abspath(__file__))
random = np.random.RandomState(5)


def picture(height, width, channels):
    y, x = np.mgrid[0:height, 0:width].astype(float)
    planes = [
        127 + 90 * np.sin(0.21 * x + c) * np.cos(0.17 * y - c) + random.normal(0, 25, x.shape)
        for c in range(channels)
    ]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


arrays = {}
rgb = Image.fromarray(picture(22, 19, 3))
grey = Image.fromarray(picture(22, 19, 1)[..., 0])
files = {
    "rgb.jpg": (rgb, dict(quality=80)),
    "rgb444.jpg": (rgb, dict(quality=90, subsampling=0)),
    "rgb422.jpg": (rgb, dict(quality=90, subsampling=1)),
    "progressive.jpg": (rgb, dict(quality=80, progressive=True)),
    "grey.jpg": (grey, dict(quality=80)),
    "cmyk.jpg": (Image.fromarray(picture(16, 17, 4), "CMYK"), dict(quality=85)),
    "rgb.png": (rgb, {}),
    "grey.png": (grey, {}),
    "palette.png": (rgb.quantize(16), {}),
    "bits.png": (grey.convert("1"), {}),
    "rgba.png": (Image.fromarray(picture(9, 12, 4), "RGBA"), {}),
    "grey_alpha.png": (Image.fromarray(picture(9, 12, 2), "LA"), {}),
}
for name, (image, options) in files.items():
    path = os.path.join(here, name)
    image.save(path, **options)
    with Image.open(path) as again:
        arrays[f"{name}/rgb"] = np.asarray(again.convert("RGB"))
        if name in ("grey.jpg", "rgb.png"):
            arrays[f"{name}/grey"] = np.asarray(again.convert("L"))

image = picture(45, 61, 3)
arrays["resize/image"] = image
cases = [
    ((0, 0, 61, 45), (24, 24), 3),
    ((0, 0, 61, 45), (7, 5), 3),
    ((3, 2, 58, 41), (32, 40), 3),
    ((10, 20, 31, 33), (64, 50), 3),
    ((5, 5, 6, 40), (9, 9), 3),
    ((5, 5, 37, 37), (32, 16), 3),
    ((5, 5, 37, 37), (16, 32), 3),
    ((0, 0, 61, 45), (20, 33), 2),
    ((10, 20, 31, 33), (64, 50), 2),
]
for n, (box, size, kind) in enumerate(cases):
    part = Image.fromarray(image).crop(box)
    arrays[f"resize/{n}/box"] = np.array(box, np.int64)
    arrays[f"resize/{n}/filter"] = np.array(kind, np.int64)
    arrays[f"resize/{n}/out"] = np.asarray(part.resize(size, Image.Resampling(kind)))
grey_part = Image.fromarray(image[..., 0]).crop((2, 3, 60, 44)).resize((23, 31), 3)
arrays["resize/grey"] = np.asarray(grey_part)
np.savez_compressed(os.path.join(here, "pillow.npz"), **arrays)
