#!/usr/bin/env python3
"""Writes docs/what-fits.md: what it takes to train each model on 1, 2, 4 and 8 cards of 24, 48 and 80 GB.

    scripts/what_fits.py TESSERA [--models NAME,...] [--check]

TESSERA is the command. Each cell is the cheapest answer of `tessera plan --budget` for CUDA. --check compares
the page's rows of these models (default: all) with the command's answers, and changes nothing.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/what-fits.md"
CARDS = (1, 2, 4, 8)
SIZES = (24, 48, 80)
SEQ = 4096
# What the cards do not give to a model: the driver's context and the allocator's rest.
SPARE_GB = 1.5
MODELS = {"gpt2": 1024, "gpt2-xl": 1024, "llama2-7b": SEQ, "mistral-7b": SEQ,
          "llama3-8b": SEQ, "qwen3-0.6b": SEQ, "qwen3-4b": SEQ, "qwen3-14b": SEQ, "qwen3-32b": SEQ,
          "llama3-70b": SEQ}

HEAD = f"""# What fits on 1, 2, 4 and 8 cards

Which options train a model on cards of a size, for those who choose a model or a machine. `scripts/what_fits.py` wrote this page
from the answers of `tessera plan`.

<!-- not run: writes this page -->
```sh
scripts/what_fits.py build/release/tools/tessera
```

Every answer is the cheapest that fits a card less {SPARE_GB} GB for CUDA's context: AdamW in bf16 with fp32 masters and moments,
one sequence a card at a time, of 1,024 tokens for GPT-2 and {SEQ:,} for the others. The bytes are those that the run would take
([planning](planning.md)). A dash: nothing that the search tries fits.

`rc` is `--recompute`, `off` is `--offload`, with the bytes of host memory a card, `rows` is `--head-rows`. Models:
[models](models.md).
"""


def answer(command, model, seq, cards, size):
    """The cell of a model on `cards` cards of `size` GB."""
    budget = f"{int((size - SPARE_GB) * 1000)}MB"
    words = [command, "plan", "--model", model, "--ranks", str(cards), "--batch", "1", "--precision", "bf16",
             "--for", "cuda", "--budget", budget]
    if seq != 1024:
        words += ["--seq", str(seq)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "error: nothing fits" in done.stderr:
        return "-"
    found = re.search(r"^  tessera train (.*)$", done.stdout, re.M)
    if done.returncode != 0 or not found:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    options = dict(re.findall(r"--(\S+) (\S+)", found.group(1)))
    parts = [options["strategy"]]
    for name, short in (("mesh", "mesh"), ("recompute", "rc"), ("offload", "off"), ("head-rows", "rows")):
        if name in options:
            parts.append(f"{short} {options[name]}")
    host = re.search(r"takes up to (\S+) (\S+) of host memory", done.stdout)
    return ", ".join(parts) + (f" ({host.group(1)} {host.group(2)} of host)" if host else "")


def row(command, model, size):
    """One line of the table of cards of `size` GB."""
    cells = [answer(command, model, MODELS[model], cards, size) for cards in CARDS]
    return f"| {model} | " + " | ".join(cells) + " |"


def tables(command, models):
    """The lines of each table, by size."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = {size: [pool.submit(row, command, model, size) for model in models] for size in SIZES}
        return {size: [job.result() for job in rows] for size, rows in jobs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    models = asked.models.split(",")
    found = tables(asked.command, models)
    if asked.check:
        page = PAGE.read_text()
        wrong = []
        for size, rows in found.items():
            section = page.split(f"## Cards of {size} GB\n", 1)[-1].split("\n## ", 1)[0]
            wrong += [f"cards of {size} GB: {line}" for line in rows if line not in section.splitlines()]
        for line in wrong:
            print(f"not in {PAGE.relative_to(ROOT)}: {line}", file=sys.stderr)
        return 1 if wrong else 0
    text = HEAD
    for size, rows in found.items():
        text += f"\n## Cards of {size} GB\n\n| model | " + " | ".join(f"{cards}" for cards in CARDS) + " |\n|---|"
        text += "---|" * len(CARDS) + "\n" + "\n".join(rows) + "\n"
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
