"""Records what bitsandbytes computes for NF4 with double quantisation, on a CPU.

    record_bitsandbytes.py HEADER            by its implementation in PyTorch: bitsandbytes_data.hpp
    record_bitsandbytes.py --native HEADER   by its compiled CPU library, for comparison

Both give the same for these tensors. In larger ones codes of the second quantisation differ: the
library looks them up in a table of 65,536 entries, which is coarser than the numbers of the dynamic
map around 0 (117 of 65,536 codes for 2^22 normal weights). bitsandbytes' CUDA kernels and its
implementation in PyTorch compare with midpoints, as Tessera does.

Needs torch and bitsandbytes. It is not run in CI: quantised_test.cpp reads what it has written.
"""
import ctypes
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # operation by operation, nothing compiled
import torch  # noqa: E402

NATIVE = sys.argv[1:2] == ["--native"]


def refuse(name):
    raise OSError(f"{name} is not loaded")


if not NATIVE:
    ctypes.cdll.LoadLibrary = refuse  # bitsandbytes then uses PyTorch alone
import bitsandbytes  # noqa: E402
from bitsandbytes import functional  # noqa: E402
from bitsandbytes.cextension import ErrorHandlerMockBNBNativeLibrary, lib  # noqa: E402

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# name, elements, dtype, seed, whether some blocks are special
CASES = [("with special blocks", 64 * 16 + 41, "fp32", 1, True), ("of bf16", 64 * 300, "bf16", 2, False),
         ("of fp32", 64 * 512, "fp32", 3, False), ("of fp16", 64 * 71 + 10, "fp16", 4, True)]


def values(elems, seed, special):
    """The numbers of values() in bitsandbytes.hpp: exact in fp32."""
    state, numbers = seed, []
    for i in range(elems):
        total = 0
        for _ in range(4):
            state = (state * 1664525 + 1013904223) % 2**32
            total += state >> 16
        block = i // 64
        number = (total - 131070) * 2.0 ** (-16 + block % 5 - 8)
        kind = block % 12 if special else 0
        numbers.append({3: 0.0, 7: -0.25, 10: number * 2.0**-125}.get(kind, number))
    return torch.tensor(numbers, dtype=torch.float64).to(torch.float32)


def raw(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def hash_of(tensor):
    """FNV-1a of 64 bits."""
    state = 0xCBF29CE484222325
    for byte in raw(tensor):
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"0x{state:016x}"


def words(tensor):
    data = raw(tensor.to(torch.float32))
    return "".join(f"{int.from_bytes(data[i:i + 4], 'little'):08x}" for i in range(0, len(data), 4))


def text(digits, indent):
    """A literal behind " =", in lines of at most 100 columns."""
    if len(digits) <= 70:
        return f' "{digits}"'
    width = 96 - indent
    lines = [digits[i:i + width] for i in range(0, len(digits), width)]
    return "".join(f'\n{" " * indent}"{line}"' for line in lines)


def record(name, elems, dtype, seed, special):
    tensor = values(elems, seed, special).to(DTYPES[dtype])
    options = dict(blocksize=64, quant_type="nf4")
    absmax = functional.quantize_4bit(tensor, **options)[1].absmax
    packed, state = functional.quantize_4bit(tensor, compress_statistics=True, **options)
    hashes = []
    for to in DTYPES.values():
        state.dtype = to
        hashes.append(hash_of(functional.dequantize_4bit(packed, state)))
    return f"""    {{.name = "{name}",
     .elems = {elems},
     .dtype = DType::{dtype},
     .seed = {seed},
     .special = {str(special).lower()},
     .codes = {hash_of(packed)},
     .absmax = {hash_of(absmax)},
     .offset = 0x{words(state.offset)},
     .absmax_codes ={text(raw(state.absmax).hex(), 9)},
     .scales = "{words(state.state2.absmax)}",
     .dequantised = {{{", ".join(hashes)}}}}},"""


def main():
    assert isinstance(lib, ErrorHandlerMockBNBNativeLibrary) != NATIVE
    cases = "\n".join(record(*case) for case in CASES)
    by = "its compiled CPU library" if NATIVE else "its implementation in PyTorch"
    with open(sys.argv[-1], "w", encoding="ascii") as file:
        file.write(f"""#pragma once

#include <string_view>

#include "kernels/bitsandbytes.hpp"

// Written by record_bitsandbytes.py with bitsandbytes {bitsandbytes.__version__} ({by}) and
// torch {torch.__version__}.
namespace tessera::kernels::bitsandbytes {{

inline constexpr std::string_view kDynamicMap ={text(words(functional.create_dynamic_map()), 4)};

inline constexpr Recorded kRecorded[] = {{
{cases}
}};

}}  // namespace tessera::kernels::bitsandbytes
""")


if __name__ == "__main__":
    main()
