#!/usr/bin/env python3
"""Writes the .npy and .npz files of this folder with numpy (2.4.6 wrote those that are kept)."""
import numpy as np

arrays = {
    "f4": np.arange(6, dtype="<f4").reshape(2, 3) / 4,
    "f8": np.array([0.1, -1e300, np.inf], "<f8"),
    "i4": np.array(-7, "<i4"),
    "i8": np.zeros((2, 0), "<i8"),
    "u1": np.array([0, 1, 255], "|u1"),
    "i1": np.array([[-128, 0], [1, 127]], "|i1"),
    "masks": np.asfortranarray(np.arange(12).reshape(3, 4) % 3 == 0),
    "fortran": np.asfortranarray(np.arange(24, dtype="<f4").reshape(2, 3, 4)),
    "fortran_i8": np.asfortranarray(np.arange(6, dtype="<i8").reshape(3, 2)),
    "names": np.array(["a", "bc"]),
    "big_endian": np.arange(3, dtype=">f4"),
    "half": np.arange(3, dtype="<f2"),
    "record": np.zeros(2, [("a", "<f4"), ("b", "<i4")]),
}
np.savez("stored.npz", **arrays)
np.savez_compressed("deflated.npz", zeros=np.zeros(5000, "<f4"), **arrays)
for version in (1, 2, 3):
    with open(f"v{version}.npy", "wb") as file:
        np.lib.format.write_array(file, np.arange(4, dtype="<i4").reshape(2, 2), (version, 0))

# The three layouts of data sets that graph/datasets reads: seeds for the fuzzer.
split = {part + "_mask": np.arange(5) % 3 == i for i, part in enumerate(("train", "val", "test"))}
edges = np.array([[0, 1], [1, 2], [3, 4]], "<i4")
np.savez(
    "plain_data.npz",
    x_shape=np.array([5, 8], "<i4"),
    x_indptr=np.array([0, 2, 2, 3, 3, 4], "<i4"),
    x_indices=np.array([1, 7, 0, 3], "<i4"),
    x_data=np.ones(4, "<f4"),
    edges=edges,
    y=np.array([0, 1, 0, 2, 1], "<i4"),
    **{name: mask.astype("u1") for name, mask in split.items()},
)
np.savez_compressed(
    "heterophilous_data.npz",
    node_features=np.eye(5, 3, dtype="<f4"),
    node_labels=np.array([0, 1, 0, 2, 1], "<i8"),
    edges=edges.astype("<i8"),
    **{name + "s": np.asfortranarray(np.stack([mask, mask[::-1]])) for name, mask in split.items()},
)
np.savez_compressed(
    "shchur_data.npz",
    adj_shape=np.array([4, 4]),
    adj_indptr=np.array([0, 1, 2, 4, 4], "<i4"),
    adj_indices=np.array([1, 0, 2, 3], "<i4"),
    adj_data=np.ones(4, "<f4"),
    attr_shape=np.array([4, 9]),
    attr_indptr=np.array([0, 1, 1, 2, 3], "<i4"),
    attr_indices=np.array([8, 0, 4], "<i4"),
    attr_data=np.ones(3, "<f4"),
    labels=np.array([0, 1, 1, 0], "i1"),
    names=np.array(["a", "b", "c", "d"]),
)
