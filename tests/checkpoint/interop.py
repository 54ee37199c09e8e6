"""What Python's safetensors reads of a folder of weights, or writes into it.

    interop.py read FOLDER     prints {FILE: {TENSOR: [dtype, shape, data in hexadecimal]}}
    interop.py write FOLDER    writes two files with their index, as Hugging Face's libraries do
"""
import ctypes
import importlib.util
import json
import pathlib
import struct
import sys

import safetensors


def read(folder):
    files = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors = safetensors.deserialize(path.read_bytes())
        files[path.name] = {name: [tensor["dtype"], tensor["shape"], bytes(tensor["data"]).hex()]
                            for name, tensor in tensors}
        if importlib.util.find_spec("numpy"):  # mapped, as models are loaded
            with safetensors.safe_open(path, framework="numpy") as opened:
                assert opened.metadata() == {"format": "pt"}, path
                for name, (dtype, _, data) in files[path.name].items():
                    assert dtype != "F32" or opened.get_tensor(name).tobytes().hex() == data, name
    for path in folder.glob("*.safetensors.index.json"):
        index = json.loads(path.read_text())
        total = 0
        for name, file in index["weight_map"].items():
            total += len(files[file][name][2]) // 2
        assert total == index["metadata"]["total_size"], path
        assert text_of(index) == path.read_text(), path
    print(json.dumps(files))


def text_of(index):
    """As huggingface_hub and transformers write it."""
    return json.dumps(index, indent=2, sort_keys=True) + "\n"


def write(folder):
    files = {"model-00001-of-00002.safetensors":
             {"a.weight": ("float32", [2, 2], struct.pack("<4f", 1, 2, 3, 4)),
              "a.half": ("bfloat16", [3], struct.pack("<3H", 0x3F80, 0xC000, 0x7F80))},
             "model-00002-of-00002.safetensors":
             {"b": ("float16", [1], struct.pack("<e", -0.5)),
              "count": ("int64", [], struct.pack("<q", 7))}}
    weight_map = {}
    total = 0
    for file, tensors in files.items():
        kept = {name: ctypes.create_string_buffer(data, len(data))
                for name, (_, _, data) in tensors.items()}
        safetensors.serialize_file(
            {name: safetensors.TensorSpec(dtype=dtype, shape=shape, data_len=len(data),
                                          data_ptr=ctypes.addressof(kept[name]))
             for name, (dtype, shape, data) in tensors.items()},
            folder / file, {"format": "pt"})
        for name, (_, _, data) in tensors.items():
            weight_map[name] = file
            total += len(data)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(text_of(index))


{"read": read, "write": write}[sys.argv[1]](pathlib.Path(sys.argv[2]))
