"""The page, gpu.md, and its figures, gpu.json: sections and parts of this call and of earlier ones."""

import json
import os
import re
import shutil

import document
from parts import PARTS

ORDER = ("NOT met", "refused", "not measured", "met", "measured")  # of verdicts
HEAD = ["| verdict | bar | figure | command |", "|---|---|---|---|"]


def row(bar):
    command = f"`{bar['command']}`" if bar["command"] else ""
    cells = (bar["verdict"], bar["bar"], bar["figure"], command)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


class Page:
    """A part's section and its part of gpu.json are kept in a folder, from which both files are made."""

    def __init__(self, folder, out):
        self.folder, self.out = folder, out

    def take(self):
        """Takes the parts that this folder lacks from the files of an earlier call, whichever machine wrote them."""
        if not (self.folder / "kernels.md").exists() and (self.out / "products.json").exists():
            copy(self.out / "products.json", self.folder.parent / "products.json")
        if not (self.out / "gpu.md").exists():
            return
        lacking = {about.title: name for name, about in PARTS.items() if not (self.folder / f"{name}.md").exists()}
        for each in (self.out / "gpu.md").read_text(errors="replace").split("\n## ")[1:]:
            title, _, section = each.partition("\n")
            if title in lacking and section.strip() != "Not run.":
                (self.folder / f"{lacking[title]}.md").write_text(section.lstrip("\n"))
        if (self.out / "gpu.json").exists():
            for part in document.read(self.out / "gpu.json")["parts"]:
                if part["name"] in lacking.values():
                    document.write(self.folder / f"{part['name']}.json", part)

    def keep(self, name, section, part):
        (self.folder / f"{name}.md").write_text(section)
        document.write(self.folder / f"{name}.json", part)

    def part(self, name):
        """The part of gpu.json; None if it has not run."""
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def parts(self):
        return list(filter(None, map(self.part, PARTS)))

    def bars(self, verdict):
        return [row(bar) for part in self.parts() for bar in part["bars"] if bar["verdict"] == verdict]

    @staticmethod
    def verdicts(bars):
        return [*HEAD, *map(row, bars)]

    def write(self, machine, commit, comparison=""):
        document.write(self.out / "gpu.json", document.of_parts(self.parts()))
        lines = ["# A GPU, checked and measured\n",
                 "Written by `scripts/gpu_check.sh`; WORK is its folder. Each section is of the last run of its part."
                 "\n",
                 *table_of(machine, commit), "\n## Verdicts\n", *HEAD]
        for verdict in ORDER:
            lines += self.bars(verdict)
        for name, about in PARTS.items():
            path = self.folder / f"{name}.md"
            lines += [f"\n## {about.title}\n", path.read_text() if path.exists() else "Not run."]
        if comparison:
            lines.append(f"\n{comparison}")
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
        (self.out / "gpu.md").write_text(f"{text.strip()}\n")
        if (self.folder.parent / "products.json").exists():
            copy(self.folder.parent / "products.json", self.out / "products.json")


def table_of(machine, commit):
    device = machine["device"]
    rows = {**machine, "device": f"**{device}**" if "emulated" in device else device, "commit": commit}
    return ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())]


def copy(source, target):
    if not (target.exists() and os.path.samefile(source, target)):
        shutil.copy(source, target)
