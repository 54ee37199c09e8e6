"""Trainings of Tessera and of PyTorch, and what a step of them takes."""

import json
from pathlib import Path
from typing import NamedTuple

from run import Result, median

GPT2 = ["--layers", 12, "--hidden", 768, "--heads", 12, "--seq", 1024]
TINY = ["--layers", 1, "--hidden", 16, "--heads", 2, "--seq", 8, "--vocab", 256]
# Plain uint16, or llm.c's uint32 with its header for a vocabulary that needs 4 bytes.
WRITE_TOKENS = """import array, random, sys
random.seed(1)
vocab, count = int(sys.argv[2]), 2_000_000
with open(sys.argv[1], "wb") as file:
    if vocab > 65536:
        array.array("i", [20240801, 7, count] + 253 * [0]).tofile(file)
    array.array("I" if vocab > 65536 else "H", (random.randrange(vocab) for _ in range(count))).tofile(file)
print("done")"""


class Model(NamedTuple):
    options: list  # of `tessera train`
    plan: list  # of `tessera plan`
    shape: list  # of torch_gpt.py
    data: list
    words: str  # the shape of figures


def words_of(sizes):
    """Options as a figure's shape: layers 12, hidden 768."""
    pairs = zip(sizes[::2], sizes[1::2])
    return ", ".join(f"{name[2:]} {value}" for name, value in pairs)


def gpt2(part, vocab=50257):
    """GPT-2 124M, named where the preset has this vocabulary."""
    shape = [*GPT2, "--vocab", vocab]
    options = ["--model", "gpt2"] if vocab == 50257 else shape
    return tiny(part) or Model(options, shape, shape, tokens(part), words_of(shape))


def preset(part, name, layers, hidden, heads):
    shape = ["--layers", layers, "--hidden", hidden, "--heads", heads, "--seq", 1024, "--vocab", 50257]
    return tiny(part) or Model(["--model", name], ["--model", name], shape, tokens(part), name)


def tiny(part):
    """The model of an emulated device, whatever is asked for; None for a GPU."""
    return Model(TINY, TINY, TINY, ["--data", "README.md"], words_of(TINY)) if part.call.emulated else None


def large(part):
    return preset(part, "gpt2-large", 36, 1280, 20)


def xl(part):
    return preset(part, "gpt2-xl", 48, 1600, 25)


def qwen3(part):
    """Qwen 3 of 0.6 B parameters with sequences of 1024; on an emulated device the tests' small one."""
    if part.call.emulated:
        model, sizes = "tests/hub/data/qwen3", (2, 16, 4, 8, 53, 2, 6, 28)
    else:
        model, sizes = "qwen3-0.6b", (28, 1024, 16, 1024, 151936, 8, 128, 3072)
    names = ("--layers", "--hidden", "--heads", "--seq", "--vocab", "--kv-heads", "--head-size", "--wide")
    size = dict(zip(names, sizes))
    options, shape = ["--model", model, "--seq", size["--seq"]], [word for pair in size.items() for word in pair]
    return Model(options, options, shape, tokens(part, size["--vocab"]), f"{Path(model).name}, seq {size['--seq']}")


def tokens(part, vocab=50257):
    """A file of random tokens: the bytes of a text have only 256 values, which suits caches."""
    file = part.call.work / f"tokens-{vocab}.bin"
    if not file.exists() and part.call.programs.ask(part.call.python, "-c", WRITE_TOKENS, str(file), str(vocab)) != "done":
        part.note("No random tokens could be written: the data is the bytes of docs/.")
        return ["--data", "docs"]
    return ["--tokens", file]


class Step(NamedTuple):
    """A training: its command, and the medians over the later half of its steps; None of what it did not give."""

    result: Result
    speed: float = None  # tokens/s
    seconds: float = None
    peaks: list = []  # bytes of each rank

    @property
    def status(self):
        return self.result.status

    def needed(self, before=""):
        self.result.needed(before)
        return self

    @property
    def peak(self):
        return max(self.peaks, default=None)


def rows_of(log):
    """The lines of a file of `tessera train --log`."""
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def train(part, name, model, batch, count, *options, launch=(), allowed=(3,), lines=5):
    """Trains a model for `count` steps, by a command that `launch` starts."""
    log = part.call.work / f"{name}.jsonl"
    result = part.keep(lines, *launch, part.call.tessera, "train", "--device", "cuda", *model.data, *model.options,
                       "--precision", "bf16", "--batch", batch, *options, "--steps", count, "--log", log,
                       allowed=allowed, makes=[log])
    rows = rows_of(log) if result.status == 0 else []
    later = rows[len(rows) // 2:]
    return Step(result, *(median([row[key] for row in later]) for key in ("tokens_per_second", "seconds")),
                rows[0]["peak_bytes"] if rows else [])


def torch(part, model, batch, count, *options, allowed=(3,), lines=12):
    """Trains the same in PyTorch."""
    device = "cpu" if part.call.emulated else "cuda"
    result = part.keep(lines, part.call.python, "bench/peers/torch_gpt.py", "--device", device, *options, *model.shape,
                       "--batch", batch, "--steps", count, allowed=allowed)
    found = json_of(result)
    peak = found.get("max_memory_allocated")
    return Step(result, found.get("tokens_per_second"), None, [] if peak is None else [peak])


def json_of(result):
    """The object that a program of bench/peers printed on a line; an empty one if it failed."""
    lines = [line for line in result.log.splitlines() if line.startswith("{")] if result.status == 0 else []
    return json.loads(lines[-1]) if lines else {}


def planned(model, batch, seconds, *options):
    """What part plans needs of a figure: the options of `tessera plan` for the step, and its seconds."""
    if seconds is None:
        return {}
    return {"plan": " ".join(map(str, (*model.plan, "--batch", batch, *options))), "seconds": float(f"{seconds:.6g}")}
