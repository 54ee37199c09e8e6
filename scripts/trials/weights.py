#!/usr/bin/env python3
"""Damages weight files: a run must read or refuse each with one error line, and never crash or hang.

  scripts/trials/weights.py --command build/release/tools/tessera --count 3000 --seed 1

Changes bytes of a weight file, cuts, lengthens or repeats parts of it, most often in its header, and
passes it to tessera train and tessera sample.
"""
import json
import struct
import sys

from common import Trial, write_text

SIZES = ["--layers", 2, "--hidden", 8, "--heads", 2, "--seq", 8]
VALUES = [0, -1, 1, 2**31, 2**63, 2**64, 1e300, None, "", "F32", "BF16", "I64", [], [0], [0, 0],
          [2**62, 4], {}, True]


def change_bytes(draws, data):
    data = bytearray(data)
    within = draws.choice((8, 64, 2000, len(data)))
    for _ in range(draws.randint(1, 8)):
        data[draws.randrange(min(within, len(data)))] = draws.randrange(256)
    return bytes(data)


def change_length(draws, data):
    if draws.random() < 0.5:
        return data[:draws.choice((0, 7, 8, 9, len(data) - 1, draws.randrange(len(data))))]
    return data + bytes(draws.choice((1, 8, 4096)))


def change_header_length(draws, data):
    length = draws.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(data), draws.randrange(5000)))
    return struct.pack("<Q", length) + data[8:]


def repeat_a_part(draws, data):
    at = draws.randrange(min(3000, len(data)))
    return data[:at] + data[at:at + draws.randint(1, 100)] * draws.randint(2, 50) + data[at:]


def change_entry(draws, data):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    name = draws.choice(sorted(header))
    what = draws.randrange(4)
    if what == 0:
        del header[name]
    elif what == 1:
        header["x" * draws.choice((1, 10_000))] = header[name]
    elif what == 2:
        header[name] = draws.choice(VALUES)
    else:
        header[name][draws.choice(("dtype", "shape", "data_offsets"))] = draws.choice(VALUES)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length:]


CHANGES = (change_bytes, change_length, change_header_length, repeat_a_part, change_entry,
           change_entry)


def main():
    trial = Trial(__doc__, 3000)
    whole = []

    def one(draws, folder):
        if not whole:
            made = trial.run(["train", *SIZES, "--steps", 0, "--checkpoint", folder / "w"])
            made.require_status(0)
            whole.append((folder / "w" / "model.safetensors").read_bytes())
        path = folder / "damaged.safetensors"
        path.write_bytes(draws.choice(CHANGES)(draws, whole[0]))
        if draws.random() < 0.5:
            end = trial.run(["sample", *SIZES, "--init", path, "--count", 2])
        else:
            text = write_text(folder / "text", 500, draws)
            end = trial.run(["train", *SIZES, "--init", path, "--data", text, "--steps", 1,
                             "--ranks", draws.randint(1, 2)])
        # 1: weights that are not finite give a non-finite gradient.
        end.require_status(0, 1, 2)
        return "read" if end.status == 0 else "refused"

    return trial.run_all(one)


if __name__ == "__main__":
    sys.exit(main())
