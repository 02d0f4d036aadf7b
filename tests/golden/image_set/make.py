#!/usr/bin/env python3
"""Writes small files of image sets, from which the fuzzer starts: IDX, CIFAR's binary version, and
archives of folders. Needs nothing but Python, and the images of ../image.
"""
import gzip
import os
import struct
import tarfile

here = os.path.dirname(os.path.abspath(__file__))


def write(name, data):
    with open(os.path.join(here, name), "wb") as file:
        file.write(data)


pixels = bytes((7 * i) % 256 for i in range(3 * 4 * 5))
idx = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 4, 5) + pixels
write("images.idx3", idx)
write("images.idx3.gz", gzip.compress(idx, mtime=0))
write("labels.idx1", struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([2, 0, 9]))
write("cifar10.bin", b"".join(bytes([k]) + bytes((k + i) % 256 for i in range(3072)) for k in (3, 9)))
for kind, name in ((tarfile.USTAR_FORMAT, "ustar"), (tarfile.GNU_FORMAT, "gnu"), (tarfile.PAX_FORMAT, "pax")):
    path = os.path.join(here, name + ".tar")
    with tarfile.open(path, "w", format=kind) as tar:
        for part, label, file in (("train", "a", "rgb.jpg"), ("train", "b", "grey.png"), ("test", "a", "rgb.png")):
            inner = f"set/{part}/{label}/{file}"
            if kind != tarfile.USTAR_FORMAT:
                inner = f"set/{part}/{label}/{'long' * 30}/{file}"
            info = tarfile.TarInfo(inner)
            with open(os.path.join(here, "../image", file), "rb") as source:
                info.size = os.path.getsize(source.name)
                tar.addfile(info, source)
