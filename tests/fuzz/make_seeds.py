#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus that are not text.

    tests/fuzz/make_seeds.py [FOLDER]

Run it when a format has changed, and look at what git then says. Text seeds (of machine_profile and
launcher), and those that a finding has left (found-*), are written by hand and stay as they are.
"""
import json
import pathlib
import struct
import sys

corpus = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "corpus")


def seed(target, name, data):
    folder = corpus / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def u64(*values):
    return b"".join(struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF) for value in values)


def i32(*values):
    return b"".join(struct.pack("<i", value) for value in values)


def text(value):
    """As PayloadWriter writes it."""
    return u64(len(value)) + value


def short(value):
    """As fuzz::Input takes it."""
    return bytes([len(value)]) + value


# ---- safetensors
def tensor(dtype, shape, first, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}


headers = {
    "two": ({"__metadata__": {"format": "pt"}, "wte.weight": tensor("F32", [2, 3], 0, 24),
             "ln_f.bias": tensor("BF16", [2], 24, 28)}, 28),
    "halves": ({"a": tensor("F16", [4], 0, 8), "b": tensor("BF16", [], 8, 10)}, 10),
    "empty_tensors": ({"a": tensor("F32", [0, 5], 0, 0), "b": tensor("I64", [1], 0, 8),
                       "c": tensor("F8_E4M3", [0], 8, 8)}, 8),
    "unknown_dtype": ({"a": tensor("F4", [3, 1], 0, 2), "b": tensor("BOOL", [2], 2, 4)}, 4),
    "none": ({}, 0),
    "overlap": ({"a": tensor("U8", [4], 0, 4), "b": tensor("I8", [4], 2, 6)}, 6),
    "huge_shape": ({"a": tensor("F32", [4294967296, 4294967296], 0, 4)}, 4),
}
for name, (header, size) in headers.items():
    header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    seed("safetensors_header", name, struct.pack("<H", size) + header)
    seed("safetensors_file", name, u64(len(header)) + header + bytes(range(size)))
seed("safetensors_file", "short", u64(2)[:5])
seed("safetensors_file", "long_header", u64(100_000_000) + b"{}")


# ---- checkpoints: the first byte says whether the checksum is added
def manifest(tensors, files, **changes):
    state = {"steps": "12", "updates": "12", "loss_scale": "1", "good_steps": "0",
             "skipped_in_a_row": "0", "skipped": "0"}
    fields = {"format": 1, "step": 12, "state": state, "values": {"seed": "7"}, "files": files,
              "tensors": tensors}
    return json.dumps({**fields, **changes})[:-1].encode() + b",\n"


def listed(name, role, dtype, shape, first_byte, size, chunk_bytes=256, file="a", sums=1):
    return {"name": name, "role": role, "dtype": dtype, "shape": shape, "chunk_bytes": chunk_bytes,
            "file": file, "first_byte": first_byte, "bytes": size,
            "sums": "0123456789abcdef" * sums}


manifests = {
    "none": manifest([], {}),
    "two": manifest([listed("w", "weight", "F32", [2, 3], 64, 24),
                     listed("w.moment_0", "moment", "F32", [2, 3], 88, 24)], {"a": 112}),
    "empty_tensor": manifest([listed("w", "weight", "BF16", [0], 8, 0, 128, sums=0)], {"a": 8}),
    "blocks": manifest([listed("w", "weight", "F32", [1 << 23], 64, 1 << 25, sums=2)],
                       {"a": (1 << 25) + 64}),
    "few_sums": manifest([listed("w", "weight", "F32", [1 << 23], 64, 1 << 25)],
                         {"a": (1 << 25) + 64}),
    "overlap": manifest([listed("w", "weight", "F32", [1], 64, 4),
                         listed("x", "extra", "F32", [1], 66, 4)], {"a": 70}),
    "huge": manifest([listed("w", "extra", "U8", [(1 << 63) - 1], 0, (1 << 63) - 1, 64)],
                     {"a": (1 << 63) - 1}),
    "other_format": manifest([], {}, format=2),
    "other_folder": manifest([], {"../a": 1}),
}
for name, body in manifests.items():
    seed("checkpoint_manifest", name, b"\1" + body)
seed("checkpoint_manifest", "no_checksum", b"\0" + manifests["two"])



# ---- parts: the text before the manifest, a zero byte, the manifest
def part(ranges, number=0, count=2, body="two", **changes):
    fields = {"save": "one save", "part": number, "parts": count,
              "ranges": [{"file": file, "first_byte": first, "bytes": size}
                         for file, first, size in ranges], **changes}
    return b"\1" + json.dumps(fields)[:-1].encode() + b", \0" + manifests[body]


parts = {
    "first": part([("a", 0, 64), ("a", 88, 24)]),
    "second": part([("a", 64, 24)], 1),
    "none": part([], 0, 1, "none"),
    "other_file": part([("b", 0, 1)]),
    "beyond": part([("a", 110, 5)]),
    "huge": part([("a", (1 << 63) - 1, (1 << 63) - 1)], body="huge"),
    "overlap": part([("a", 0, 64), ("a", 60, 6)]),
    "divides_a_chunk": part([("a", 64, 12)]),
    "of_none": part([], 3, 2),
}
for name, body in parts.items():
    seed("checkpoint_part", name, body)
seed("checkpoint_part", "as_it_is", b"\0" + json.dumps(
    {"save": "s", "part": 0, "parts": 1, "ranges": [], "manifest": "{}"}).encode())


# ---- folders of checkpoints: a manifest and two files
def file_of(tensors, data):
    text = '{"__metadata__":{"format":"pt"}'
    for name, (dtype, shape, first, end) in tensors.items():
        text += "," + json.dumps(name) + ":" + json.dumps(tensor(dtype, shape, first, end),
                                                         separators=(",", ":"))
    header = (text + "}").encode()
    header += b" " * (-len(header) % 8)
    return u64(len(header)) + header, data


def folder(name, change=lambda files: files, **changes):
    head, data = file_of({"w": ("F32", [2, 3], 0, 24)}, bytes(range(24)))
    more, moments = file_of({"w.moment_0": ("F32", [2, 3], 0, 24)}, bytes(24))
    listing = [listed("w", "weight", "F32", [2, 3], len(head), 24, file="model.safetensors"),
               listed("w.moment_0", "moment", "F32", [2, 3], len(more), 24,
                      file="optimizer.safetensors")]
    sizes = {"model.safetensors": len(head) + 24, "optimizer.safetensors": len(more) + 24}
    files = change([head + data, more + moments])
    seed("checkpoint_folder", name,
         b"\0|".join([manifest(listing, {**sizes, **changes}), *files]))


folder("whole")
folder("short", lambda files: [files[0][:-1], files[1]])
folder("other_header", lambda files: [files[0].replace(b"F32", b"I32"), files[1]])
folder("swapped", lambda files: files[::-1])
folder("missing", **{"extras.safetensors": 8})
folder("index", **{"model.safetensors.index.json": 8})

indices = {
    "two": {"metadata": {"total_size": 28},
            "weight_map": {"wte.weight": "model-00001-of-00002.safetensors",
                           "ln_f.bias": "model-00002-of-00002.safetensors"}},
    "none": {"weight_map": {}},
    "other_folder": {"weight_map": {"a": "../a.safetensors"}},
    "no_map": {"metadata": {}},
}
for name, index in indices.items():
    seed("weights_index", name, json.dumps(index, indent=2).encode() + b"\n")


# ---- tokens
def with_header(magic, version, count, tokens):
    return i32(magic, version, count) + bytes(1012) + struct.pack(f"<{len(tokens)}H", *tokens)


seed("token_file", "raw", struct.pack("<5H", 0, 1, 50256, 65535, 7))
seed("token_file", "odd", b"abc")
seed("token_file", "empty", b"")
seed("token_file", "llm_c", with_header(20240520, 1, 3, [1, 2, 50256]))
seed("token_file", "other_version", with_header(20240520, 2, 1, [1]))
seed("token_file", "other_count", with_header(20240520, 1, 7, [1]))
seed("token_file", "cut_header", i32(20240520, 1, 0))


def npy(descr, shape, data, version=1):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + struct.pack("<BBH" if version == 1 else "<BBI", version, 0, len(text)) + text + data


seed("token_file", "npy_int32", npy("<i4", "(3,)", i32(1, 2, 50256)))
seed("token_file", "npy_negative", npy("<i8", "(2,)", struct.pack("<2q", 7, -1), version=2))
seed("token_file", "npy_matrix", npy("<u2", "(2, 1)", struct.pack("<2H", 7, 1)))
seed("token_file", "npy_floats", npy("<f4", "(1,)", struct.pack("<f", 7)))

# ---- the control path
HELLO, WELCOME, REFUSE, GROUP, TEXT, TEXTS, FAILURE, LOST, AT_END, ASK, ANSWER, ISSUED, EXPLAIN, \
    CODE, HELD, DIFFER = range(16)
GATHER_TEXT, REDUCE_TEXT, SETUP, END, GATHER_BATCH, REDUCE_BATCH = range(6)


def frame(kind, call=SETUP, sequence=0, rank=0, payload=b"", group=0):
    return struct.pack("<IHHQiIQ", 0x32525354, kind, call, sequence, rank, len(payload), group) + payload


hello = u64(4) + text(b"build 1") + text(b"token") + text(b"") + text(b"process 7 on node3")
group = text(b"shard") + u64(0, 2)
answer = u64(2, 1, 3, 1, 2) + text(b"the batch (channel shard, sequence 4)")
counts = u64(GATHER_TEXT, 0, 3, REDUCE_BATCH, 9, 12)
seed("control_frames", "hello", bytes([7, 255]) + frame(HELLO, rank=2, payload=hello))
seed("control_frames", "several", bytes([40, 8]) + frame(WELCOME) + frame(TEXT, GATHER_TEXT, 5, 1, b"x" * 9)
     + frame(ASK, GATHER_BATCH, 3, group=7))
seed("control_frames", "too_long", bytes([3, 0]) + frame(WELCOME) + frame(TEXT, payload=b"x"))
seed("control_frames", "stranger", bytes([255, 9]) + b"GET / HTTP/1.1\r\n\r\n")

seed("control_messages", "hello", bytes([0]) + hello)
seed("control_messages", "group", bytes([1]) + group)
seed("control_messages", "texts", bytes([2]) + text(b"a") + text(b"") + text(b"ccc"))
seed("control_messages", "answer", bytes([3]) + answer)
seed("control_messages", "counts", bytes([4]) + counts)
seed("control_messages", "held", bytes([5]) + u64(1))
seed("control_messages", "failed", bytes([6]) + i32(4, 0, 0) + b"rank 2: out of memory")
seed("control_messages", "late", bytes([6]) + i32(4, 1, 2, 0, 3) + b"the batch: rank 2 waited")


def entry(operation, elems, full=0, root=0, dtype=0, reduction=0):
    return struct.pack("<qqiBBBB", elems, full, root, operation, dtype, reduction, 0)


def batch(label, *entries):
    return text(label) + b"".join(entries)


one = batch(b"gather h.0", entry(0, 3, 12, dtype=1), entry(2, 5, dtype=3))
other = batch(b"gather h.0", entry(0, 3, 12, dtype=1), entry(4, 9, root=3, reduction=1))
more = batch(b"", entry(1, 2, 8, reduction=1), entry(3, 7, root=2, dtype=2), entry(5, 4, root=1))


def said(rank, kind, call=SETUP, sequence=0, payload=b"", group=0):
    return bytes([rank, kind, call, group, sequence]) + short(payload)


def meeting(call, sequence, ranks, group=0, payload=b""):
    return b"".join(said(rank, TEXT, call, sequence, payload, group) for rank in ranks)


pair = b"".join(said(rank, GROUP, group=5, payload=text(b"shard") + u64(0, 2)) for rank in (0, 2))
seed("control_talk", "meet", meeting(SETUP, 0, range(4), payload=b"xy") + meeting(SETUP, 1, range(4)))
seed("control_talk", "end", meeting(END, 0, range(4), payload=counts))
seed("control_talk", "group", pair + meeting(GATHER_TEXT, 0, (0, 2), 5)
     + said(0, ISSUED, GATHER_BATCH, 0, u64(7), 5) + said(2, ASK, GATHER_BATCH, 0, b"", 5))
seed("control_talk", "late", said(1, TEXT, SETUP, 0, b"x") + said(1, ASK, SETUP, 0))
seed("control_talk", "held", pair + said(0, ISSUED, GATHER_BATCH, 0, u64(7), 5)
     + said(0, HELD, GATHER_BATCH, 0, u64(1), 5) + said(1, TEXT, SETUP, 0) + said(1, ASK, SETUP, 0)
     + said(0, HELD, GATHER_BATCH, 0, u64(0), 5))
seed("control_talk", "failure", said(3, FAILURE, payload=b"rank 3: out of memory"))
seed("control_talk", "differ", b"".join(said(rank, ISSUED, GATHER_BATCH, 0, u64(rank // 3, 9))
                                        for rank in range(4))
     + b"".join(said(rank, CODE, GATHER_BATCH, 0, b"\1" + (other if rank == 3 else one))
                for rank in range(4)) + meeting(SETUP, 0, range(2)))
seed("control_talk", "in_time", b"".join(said(rank, ISSUED, REDUCE_BATCH, 0, u64(5)) for rank in range(4))
     + said(1, ASK, REDUCE_BATCH, 0))

# ---- texts between ranks
EXCHANGE, SPLIT, NUMBER = range(3)


def sealed(call, value, name=b""):
    return u64(call) + text(name) + text(value)


def texts(which, *values):
    return bytes([which]) + b"".join(short(value) for value in values)


seed("rank_texts", "exchange", texts(0, sealed(EXCHANGE, b"a"), sealed(EXCHANGE, b"bc")))
seed("rank_texts", "other_call", texts(0, sealed(SPLIT, b"a", b"shard"), sealed(EXCHANGE, b"a")))
seed("rank_texts", "splits", texts(1, i32(0, 0, 1) + b"shard", i32(0, 0, 1) + b"shard", i32(0, 1, 1) + b"shard"))
seed("rank_texts", "split_names", texts(1, i32(0, 0) + b"shard", i32(0, 0) + b"replica"))
seed("rank_texts", "numbers", texts(2, sealed(NUMBER, b"4", b"x"), sealed(NUMBER, b"12", b"x")))
seed("rank_texts", "cores", texts(3, text(b"a machine") + u64(0, 4, 8, 1)))
seed("rank_texts", "ledger", texts(4, b"12 5:h.0.a " + b"0 1 2 3 4 5 6 7 8 9 "))
seed("rank_texts", "batches", texts(5, one, other))
seed("rank_texts", "batch", texts(5, more))
