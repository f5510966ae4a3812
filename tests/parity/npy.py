# SPDX-License-Identifier: MIT
"""Writes arrays by NumPy, as people have them, and files that load_npy has to refuse.

    python tests/parity/npy.py        # needs numpy; writes tests/parity/data/npy/

tests/unit/data/npy_test.cpp knows the numbers by the same formula.
"""
import pathlib
import shutil

import numpy as np

FOLDER = pathlib.Path(__file__).parent / "data" / "npy"


def values(*shape):
    """2.5, -2.375, 2.25 ...: exact in float16."""
    count = int(np.prod(shape))
    i = np.arange(count)
    return (((i % 40) - 20) / 8 * np.where(i % 2, 1, -1)).reshape(shape)


def save(name, array, version=None):
    with open(FOLDER / name, "wb") as file:
        np.lib.format.write_array(file, array, version=version)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for dtype in ("float16", "float32", "float64"):
        np.save(FOLDER / f"{dtype}.npy", values(3, 5).astype(dtype))
        np.save(FOLDER / f"{dtype}_fortran.npy", np.asfortranarray(values(2, 3, 5).astype(dtype)))
    for version in ((1, 0), (2, 0), (3, 0)):
        save(f"format_{version[0]}.npy", values(1, 3, 5).astype(np.float32), version)
    np.save(FOLDER / "scalar.npy", np.float32(0.25))
    np.save(FOLDER / "vector.npy", values(7).astype(np.float32))
    np.save(FOLDER / "empty.npy", np.zeros((0, 5), np.float32))
    np.save(FOLDER / "not_finite.npy", np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32))

    np.save(FOLDER / "big_endian.npy", values(3, 5).astype(">f4"))
    np.save(FOLDER / "integers.npy", np.arange(15, dtype=np.int64).reshape(3, 5))
    np.save(FOLDER / "complex.npy", np.ones(3, np.complex64))
    np.save(FOLDER / "records.npy", np.zeros(3, [("mel", "<f4"), ("id", "<i8")]))
    np.save(FOLDER / "objects.npy", np.array([values(2), values(3)], dtype=object), allow_pickle=True)
    np.savez(FOLDER / "archive.npz", mel=values(3, 5).astype(np.float32))
    with open(FOLDER / "two.npy", "wb") as file:
        np.save(file, values(3).astype(np.float32))
        np.save(file, values(3).astype(np.float32))
    for path in FOLDER.glob("*.npy"):
        if path.name not in ("objects.npy",):
            np.load(path)  # each can be read by NumPy itself


if __name__ == "__main__":
    main()
