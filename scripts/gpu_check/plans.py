#!/usr/bin/env python3
"""Lists the steps that scripts/gpu_check.sh has measured on one rank, for part plans.

  plans.py FOLDER PART...

FOLDER has the figures of the parts, each as figures.py writes it; a part without figures is left out.
Prints lines of fields that end with a tab:
  step   NAME SHAPE SECONDS OPTIONS    OPTIONS are those of `tessera plan` for the same step
  other  PART COMMIT DEVICE            another device or commit than that of part kernels
"""

import os
import sys

sys.dont_write_bytecode = True  # keep the repository's folder clean

import figures  # noqa: E402


def options_of_name(name):
    """The options in a figure's name ("remainders, --recompute gelu, a step"); None if it is no step."""
    options, steps = [], 0
    for words in name.split(", "):
        if words in ("a step", "tessera"):
            steps += 1
        elif words == "remainders":
            options += ["--master-weights", "remainder"]
        elif words.startswith("--"):
            options += words.split()
        elif words != "GPT-2 on one rank":
            return None
    return options if steps == 1 else None


def sizes_of(shape):
    """The options in a figure's shape ("gpt2-xl, batch 8", "layers 12, hidden 768, batch 64")."""
    options = {}
    for words in shape.split(", "):
        name, _, value = words.rpartition(" ")
        options[f"--{name or 'model'}"] = value
    return options


def seconds_of(figure, sizes):
    """The seconds of a step; None if the figure has another unit."""
    value, unit = figure["value"], figure["unit"]
    if unit == "tokens/s" and value > 0 and "--seq" in sizes:
        return int(sizes["--batch"]) * int(sizes["--seq"]) / value
    return {"s": value, "ms": value / 1000}.get(unit)


def print_fields(*fields):
    print("".join(f"{field}\t" for field in fields))


def print_steps(part):
    for figure in part["figures"]:
        options = options_of_name(figure["name"])
        if options is None:
            continue
        sizes = sizes_of(figure["shape"])
        seconds = seconds_of(figure, sizes)
        if not seconds or "--batch" not in sizes:
            continue
        words = [word for option in sizes.items() for word in option] + options
        name = figure["name"].replace(", a step", "").replace(", tessera", "")
        print_fields("step", f"{part['name']}: {name}", figure["shape"], f"{seconds:.6g}", " ".join(words))


def origin(part):
    return part["commit"], part["machine"].get("device", "")


def main():
    folder, *names = sys.argv[1:]
    kernels = figures.load(os.path.join(folder, "kernels.json"))
    for name in names:
        path = os.path.join(folder, f"{name}.json")
        if not os.path.exists(path):
            continue
        part = figures.load(path)
        if origin(part) == origin(kernels):
            print_steps(part)
        else:
            print_fields("other", name, *origin(part))


if __name__ == "__main__":
    main()
