#!/usr/bin/env python3
"""Compares two documents of scripts/gpu_check.sh (gpu.json).

  compare.py [--noise PERCENT] OLD NEW

Prints a section of Markdown. A speed or a time has moved if it differs by more than PERCENT (3), a
number of bytes or a count if it differs at all. Lists parts that were measured on another GPU and
figures of another size without comparing them. The status is 2 if a document cannot be read.
"""

import argparse
import sys

sys.dont_write_bytecode = True  # keep the repository's folder clean

import figures  # noqa: E402

# For each unit, the words for more and for less, and whether values are exact.
UNITS = {
    "GB/s": ("faster", "slower", False),
    "TFLOP/s": ("faster", "slower", False),
    "tokens/s": ("faster", "slower", False),
    "ratio": ("faster", "slower", False),
    "s": ("slower", "faster", False),
    "ms": ("slower", "faster", False),
    "us": ("slower", "faster", False),
    "MiB": ("larger", "smaller", False),
    "bytes": ("larger", "smaller", True),
}
COUNTED = ("more", "less", True)
SAME = "the same"
ORDER = ("slower", "faster", "larger", "smaller", "more", "less", SAME)
UNKNOWN_DEVICES = ("", "unknown", "no nvidia-smi")


def in_words(value):
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def amount(figure):
    value = in_words(figure["value"])
    return value if figure["unit"] == "ratio" else f"{value} {figure['unit']}"


def full_name(part, figure):
    shape = figure["shape"]
    return f"{part}: {figure['name']}{f' ({shape})' if shape else ''}"


def moved(old, new, noise):
    """How a figure moved."""
    more, less, exact = UNITS.get(old["unit"], COUNTED)
    then, now = old["value"], new["value"]
    if then == now or (not exact and abs(now - then) <= noise * abs(then)):
        return SAME
    return more if now > then else less


def by_name(part):
    """The part's figures by name and unit, then by shape."""
    all_figures = {}
    for figure in part["figures"]:
        all_figures.setdefault((figure["name"], figure["unit"]), {})[figure["shape"]] = figure
    return all_figures


class Comparison:
    def __init__(self, noise):
        self.noise = noise
        self.rows, self.verdicts, self.machines = [], [], {}
        self.parts, self.sizes, self.only_old, self.only_new = [], [], [], []

    def documents(self, old, new):
        old = {part["name"]: part for part in old["parts"]}
        new = {part["name"]: part for part in new["parts"]}
        for name in dict.fromkeys([*old, *new]):
            if name not in new:
                self.parts.append(f"{name}: then only")
            elif name not in old:
                self.parts.append(f"{name}: now only")
            else:
                self.of_part(name, old[name], new[name])
        return self

    def of_part(self, name, old, new):
        then, now = (part["machine"].get("device", "") for part in (old, new))
        if then != now:
            self.parts.append(f"{name}: another GPU, then {then or 'not named'}, now {now or 'not named'}")
            return
        if then in UNKNOWN_DEVICES:
            self.parts.append(f"{name}: neither says which GPU it was on")
            return
        self.differences(name, old, new)
        self.of_bars(name, old["bars"], new["bars"])
        old, new = by_name(old), by_name(new)
        for key in dict.fromkeys([*old, *new]):
            self.of_shapes(name, old.get(key, {}), new.get(key, {}))

    def differences(self, name, old, new):
        """Records differences of commits and machines, each once for all parts that share it."""
        for key in dict.fromkeys(["commit", *old["machine"], *new["machine"]]):
            if key == "clocks at the start":
                continue
            pair = [
                part["commit"] if key == "commit" else part["machine"].get(key, "not told")
                for part in (old, new)
            ]
            if pair[0] != pair[1]:
                self.machines.setdefault((key, *pair), []).append(name)

    def of_bars(self, name, old, new):
        old = {bar["id"]: bar for bar in old}
        for bar in new:
            before = old.get(bar["id"])
            if before and before["verdict"] != bar["verdict"]:
                self.verdicts.append((before["verdict"], bar["verdict"], f"{name}: {bar['bar']}"))

    def of_shapes(self, part, old, new):
        """Compares figures of one name and size; lists those of another size or without counterpart."""
        for shape in old:
            if shape in new:
                self.rows.append((moved(old[shape], new[shape], self.noise), part, old[shape], new[shape]))
        gone = [figure for shape, figure in old.items() if shape not in new]
        come = [figure for shape, figure in new.items() if shape not in old]
        if gone and come:
            self.sizes.append((part, gone, come))
        else:
            self.only_old += [(part, figure) for figure in gone]
            self.only_new += [(part, figure) for figure in come]


# --- In Markdown ------------------------------------------------------------------------------------


def table(head, rows):
    if not rows:
        return
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |")
    print()


def listed(title, lines):
    if not lines:
        return
    print(f"{title}\n")
    for line in lines:
        print(f"- {line}")
    print()


def ratio(old, new):
    return f"{new['value'] / old['value']:.3f}" if old["value"] else ""


def summary(rows, noise):
    counts = [(how, sum(row[0] == how for row in rows)) for how in ORDER]
    words = [f"{count} {how}" for how, count in counts if count]
    return (f"Of {len(rows)} figures that both have: {', '.join(words) or 'none'}. A speed or a time that "
            f"differs by at most {100 * noise:g} % is the same, a number of bytes or a count only if it is equal.")


def dates_of(document):
    dates = sorted({part["date"] for part in document["parts"]})
    return " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "no date"


def print_section(old, new, noise):
    result = Comparison(noise).documents(old, new)
    rows = sorted(result.rows, key=lambda row: ORDER.index(row[0]))
    print(f"## Compared\n\nThen: {dates_of(old)}. Now: {dates_of(new)}.\n")
    if any("emulated" in part["machine"].get("device", "") for part in new["parts"]):
        print("On an emulated device: the speeds mean nothing.\n")
    print(f"{summary(rows, noise)}\n")
    table(("part", "what", "then", "now"),
          [(", ".join(parts), *pair) for pair, parts in result.machines.items()])
    listed("Not compared:", result.parts)
    table(("verdict then", "now", "bar"), result.verdicts)
    table(("moved", "figure", "then", "now", "now / then"),
          [(how, full_name(part, before), amount(before), amount(after), ratio(before, after))
           for how, part, before, after in rows])
    listed("Of another size, not compared:",
           [f"{part}: {gone[0]['name']}: then {sizes(gone)}, now {sizes(come)}"
            for part, gone, come in result.sizes])
    listed("Then only:", [only(*each) for each in result.only_old])
    listed("Now only:", [only(*each) for each in result.only_new])


def sizes(figures_of_a_name):
    return "; ".join(f"{amount(figure)} at {figure['shape'] or 'no size'}" for figure in figures_of_a_name)


def only(part, figure):
    return f"{full_name(part, figure)}: {amount(figure)}"


def percent(text):
    value = float(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is no percentage")
    return value / 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--noise", type=percent, default=0.03, help="in percent (default: 3)")
    parser.add_argument("old")
    parser.add_argument("new")
    args = parser.parse_args()
    documents = []
    for path in (args.old, args.new):
        try:
            documents.append(figures.read(path))
        except figures.Wrong as wrong:
            print(f"error: {path}: {wrong}", file=sys.stderr)
            sys.exit(2)
    print_section(*documents, args.noise)


if __name__ == "__main__":
    main()
