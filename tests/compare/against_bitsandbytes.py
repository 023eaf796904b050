#!/usr/bin/env python3
"""Random matrices quantised by zinf and by bitsandbytes on the CPU: every byte must agree.

Usage: against_bitsandbytes.py BUILD [N]     (needs torch, bitsandbytes; BUILD has .libs/libzinf.so)

PyTorch adds up the mean of scales on one thread, whose order of adding is the one that zinf has.
"""
import ctypes
import pathlib
import sys

import bitsandbytes.functional as bnb
import numpy as np
import torch

NF4, DOUBLE, INT8 = 1, 2, 3
CODES_AT, MAP_AT, OFFSET_AT = 2048, 64, 1088


class Quantized(ctypes.Structure):
    _fields_ = [("form", ctypes.c_int)] + [
        (name, ctypes.c_uint64) for name in ("rows", "cols", "n_elems", "n_blocks", "n_nested",
                                             "code_bytes", "scales_at", "nested_at", "bytes")]


def open_library(build):
    library = ctypes.CDLL(str(pathlib.Path(build) / ".libs" / "libzinf.so"))
    library.zinf_quantized_of.restype = Quantized
    library.zinf_quantized_of.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    library.zinf_quantize.argtypes = [ctypes.POINTER(Quantized), ctypes.c_void_p, ctypes.c_uint64,
                                      ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
    library.zinf_quantize_finish.argtypes = [ctypes.POINTER(Quantized), ctypes.c_void_p,
                                             ctypes.c_void_p]
    return library


def image_of(library, form, values):
    q = library.zinf_quantized_of(form, *values.shape)
    image, scales = np.zeros(q.bytes, np.uint8), np.zeros(q.n_blocks, np.float32)
    array = np.ascontiguousarray(values.numpy())
    library.zinf_quantize(q, array.ctypes.data, 0, q.n_elems, image.ctypes.data, scales.ctypes.data)
    library.zinf_quantize_finish(q, image.ctypes.data, scales.ctypes.data)
    return q, image


def same(what, image, at, expected):
    expected = expected.contiguous().view(torch.uint8).numpy().ravel()
    if not np.array_equal(image[at:at + expected.size], expected):
        raise SystemExit(f"{what} differs")


def check(library, values, name):
    q, image = image_of(library, DOUBLE, values)
    codes, state = bnb.quantize_4bit(values, blocksize=64, compress_statistics=True,
                                     quant_type="nf4")
    same(f"{name}: codes", image, CODES_AT, codes)
    same(f"{name}: scales", image, q.scales_at, state.absmax)
    same(f"{name}: scales of scales", image, q.nested_at, state.state2.absmax)
    same(f"{name}: map", image, MAP_AT, state.state2.code)
    same(f"{name}: mean", image, OFFSET_AT, state.offset.reshape(1))
    q, image = image_of(library, INT8, values)
    codes, scales, _ = bnb.int8_vectorwise_quant(values.half())
    same(f"{name}: int8", image, CODES_AT, codes)
    same(f"{name}: int8 scales", image, q.scales_at, scales)


def main():
    library, n = open_library(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200
    torch.set_num_threads(1)
    torch.manual_seed(1)
    for i in range(n):
        rows, cols = int(torch.randint(1, 400, ())), int(torch.randint(1, 3000, ()))
        values = torch.randn(rows, cols) * 10 ** float(torch.empty(()).uniform_(-3, 1))
        if i % 3 == 1:
            values = values.bfloat16().float()
        if i % 3 == 2:
            values *= torch.rand(rows, 1)
        check(library, values.contiguous(), f"matrix {i} [{rows}, {cols}]")
    print(f"{n} matrices agree")


if __name__ == "__main__":
    main()
