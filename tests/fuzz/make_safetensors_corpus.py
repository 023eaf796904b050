#!/usr/bin/env python3
"""Writes the seeds of fuzz_safetensors: small honest files, and lying ones that name their lie."""
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus" / "safetensors"


def image(header, data=b"", length=None):
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype, shape, begin, end):
    return '{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (dtype, shape, begin, end)


A = entry("F32", "[2]", 0, 8)
SEEDS = {
    "good_empty": image("{}"),
    "good_two": image('{"__metadata__":{"format":"pt"},"a":%s,"b":%s}  '
                      % (A, entry("BF16", "[2,2]", 8, 16)), bytes(16)),
    "good_scalar_and_zero": image('{"s":%s,"z":%s}'
                                  % (entry("F64", "[]", 0, 8), entry("I64", "[0,3]", 8, 8)), bytes(8)),
    "good_rank8": image('{"r":%s}' % entry("U8", "[1,1,1,1,1,1,1,2]", 0, 2), bytes(2)),
    "good_escapes": image('{"\\u00e9\\"\\\\x":%s,"\u00fc":%s}'
                          % (entry("BOOL", "[1]", 0, 1), entry("I8", "[1]", 1, 2)), bytes(2)),
    "bad_length_huge": image("{}", length=2**64 - 1),
    "bad_length_past_end": image("{}", length=3),
    "bad_product_overflow": image('{"a":%s}' % entry("F32", "[4294967296,4294967296]", 0, 0)),
    "bad_overlap": image('{"a":%s,"b":%s}' % (A, entry("F32", "[2]", 4, 12)), bytes(12)),
    "bad_gap": image('{"a":%s,"b":%s}' % (A, entry("F32", "[2]", 12, 20)), bytes(20)),
    "bad_reversed": image('{"a":{"dtype":"U8","shape":[0],"data_offsets":[8,0]}}', bytes(8)),
    "bad_exponent": image('{"a":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}}', bytes(8)),
    "bad_negative": image('{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}', bytes(8)),
    "bad_duplicate": image('{"a":%s,"\\u0061":%s}' % (A, entry("F32", "[2]", 8, 16)), bytes(16)),
    "bad_nul_in_name": image('{"a\\u0000b":%s}' % A, bytes(8)),
    "bad_nesting": image('{"a":' + "[" * 40 + "]" * 40 + "}"),
    "bad_utf8": image(b'{"\xc0\xaf":' + A.encode() + b"}", bytes(8)),
}

FOLDER.mkdir(parents=True, exist_ok=True)
for name, data in SEEDS.items():
    (FOLDER / name).write_bytes(data)
