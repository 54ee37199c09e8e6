#!/usr/bin/env python3
"""Compares two documents of scripts/gpu_check.sh (gpu.json).

  compare.py [--noise PERCENT] OLD NEW

Prints a section of Markdown. A speed or a time has moved if it differs by more than PERCENT (3), a number of bytes or
a count if it differs at all. Lists parts that were measured on another GPU and figures of another size without
comparing them. The status is 2 if a document cannot be read.
"""

import argparse
import sys

import document

# For each unit, the words for more and for less, and whether values are exact.
SPEED, TIME = ("faster", "slower", False), ("slower", "faster", False)
UNITS = {"GB/s": SPEED, "TFLOP/s": SPEED, "tokens/s": SPEED, "ratio": SPEED, "s": TIME, "ms": TIME, "us": TIME,
         "MiB": ("larger", "smaller", False), "bytes": ("larger", "smaller", True)}
COUNTED = ("more", "less", True)
SAME = "the same"
ORDER = ("slower", "faster", "larger", "smaller", "more", "less", SAME)
UNKNOWN_DEVICES = ("", "unknown", "no nvidia-smi")


def amount(figure):
    value = figure["value"]
    text = str(value) if isinstance(value, int) else f"{value:.6g}"
    return text if figure["unit"] == "ratio" else f"{text} {figure['unit']}"


def full_name(part, figure):
    shape = f" ({figure['shape']})" if figure["shape"] else ""
    return f"{part}: {figure['name']}{shape}"


def moved(old, new, noise):
    """How a figure moved."""
    more, less, exact = UNITS.get(old["unit"], COUNTED)
    then, now = old["value"], new["value"]
    if then == now or (not exact and abs(now - then) <= noise * abs(then)):
        return SAME
    return more if now > then else less


def by_name(part):
    """The part's figures by name and unit, then by shape."""
    figures = {}
    for figure in part["figures"]:
        figures.setdefault((figure["name"], figure["unit"]), {})[figure["shape"]] = figure
    return figures


class Comparison:
    def __init__(self, old, new, noise):
        self.noise = noise
        self.rows, self.verdicts, self.machines = [], [], {}
        self.parts, self.sizes, self.only_old, self.only_new = [], [], [], []
        old, new = ({part["name"]: part for part in document["parts"]} for document in (old, new))
        for name in dict.fromkeys([*old, *new]):
            if name in old and name in new:
                self.of_part(name, old[name], new[name])
            else:
                self.parts.append(f"{name}: {'then' if name in old else 'now'} only")

    def of_part(self, name, old, new):
        then, now = (part["machine"].get("device", "") for part in (old, new))
        if then != now:
            self.parts.append(f"{name}: another GPU, then {then or 'not named'}, now {now or 'not named'}")
            return
        if then in UNKNOWN_DEVICES:
            self.parts.append(f"{name}: neither says which GPU it was on")
            return
        self.differences(name, *({**part["machine"], "commit": part["commit"]} for part in (old, new)))
        before = {bar["id"]: bar["verdict"] for bar in old["bars"]}
        for bar in new["bars"]:
            if before.get(bar["id"], bar["verdict"]) != bar["verdict"]:
                self.verdicts.append((before[bar["id"]], bar["verdict"], f"{name}: {bar['bar']}"))
        old, new = by_name(old), by_name(new)
        for key in dict.fromkeys([*old, *new]):
            self.of_shapes(name, old.get(key, {}), new.get(key, {}))

    def differences(self, name, old, new):
        """Records differences of commits and machines, each once for all parts that share it."""
        for key in dict.fromkeys(["commit", *old, *new]):
            pair = old.get(key, "not told"), new.get(key, "not told")
            if key != "clocks at the start" and pair[0] != pair[1]:
                self.machines.setdefault((key, *pair), []).append(name)

    def of_shapes(self, part, old, new):
        """Compares figures of one name and size; lists those of another size or without counterpart."""
        for shape in old:
            if shape in new:
                self.rows.append((moved(old[shape], new[shape], self.noise), part, old[shape], new[shape]))
        gone = [figure for shape, figure in old.items() if shape not in new]
        come = [figure for shape, figure in new.items() if shape not in old]
        if gone and come:
            self.sizes.append(f"{part}: {gone[0]['name']}: then {sizes(gone)}, now {sizes(come)}")
        else:
            self.only_old += [f"{full_name(part, figure)}: {amount(figure)}" for figure in gone]
            self.only_new += [f"{full_name(part, figure)}: {amount(figure)}" for figure in come]

    def summary(self):
        counts = [(how, sum(row[0] == how for row in self.rows)) for how in ORDER]
        words = ", ".join(f"{count} {how}" for how, count in counts if count)
        return (f"Of {len(self.rows)} figures that both have: {words or 'none'}. A speed or a time that differs by at "
                f"most {100 * self.noise:g} % is the same, a number of bytes or a count only if it is equal.")

    def moved_rows(self):
        for how, part, old, new in sorted(self.rows, key=lambda row: ORDER.index(row[0])):
            ratio = f"{new['value'] / old['value']:.3f}" if old["value"] else ""
            yield how, full_name(part, old), amount(old), amount(new), ratio


# --- In Markdown ------------------------------------------------------------------------------------


def table(*head, rows):
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""] if lines else []


def listed(title, lines):
    return [f"{title}\n", *(f"- {line}" for line in lines), ""] if lines else []


def sizes(figures):
    return "; ".join(f"{amount(figure)} at {figure['shape'] or 'no size'}" for figure in figures)


def dates_of(document):
    dates = sorted({part["date"] for part in document["parts"]})
    return " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "no date"


def section(old, new, noise):
    """The comparison of two documents as a section of the page."""
    all_of = Comparison(old, new, noise)
    emulated = any("emulated" in part["machine"].get("device", "") for part in new["parts"])
    return "\n".join([
        f"## Compared\n\nThen: {dates_of(old)}. Now: {dates_of(new)}.\n",
        *(["On an emulated device: the speeds mean nothing.\n"] if emulated else []),
        f"{all_of.summary()}\n",
        *table("part", "what", "then", "now",
               rows=[(", ".join(parts), *difference) for difference, parts in all_of.machines.items()]),
        *listed("Not compared:", all_of.parts),
        *table("verdict then", "now", "bar", rows=all_of.verdicts),
        *table("moved", "figure", "then", "now", "now / then", rows=all_of.moved_rows()),
        *listed("Of another size, not compared:", all_of.sizes),
        *listed("Then only:", all_of.only_old),
        *listed("Now only:", all_of.only_new)])


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
            documents.append(document.read(path))
        except document.Wrong as wrong:
            print(f"error: {path}: {wrong}", file=sys.stderr)
            sys.exit(2)
    print(section(*documents, args.noise))


if __name__ == "__main__":
    main()
