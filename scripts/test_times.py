#!/usr/bin/env python3
"""Prints how long the parts of a run of scripts/test.sh took, and stores it as JSON.

    scripts/test_times.py BUILD_FOLDER... --phases FILE --json FILE

Each BUILD_FOLDER holds Ninja's log (.ninja_log) and ctest's results (tests.xml). FILE of --phases has
one line per phase: its name, a tab, its seconds. Only objects written after --since (seconds since 1970,
as date +%s prints) count as compiled in this run. The status is 1 if a test program ended before its
last case, whatever its own status.
"""
import argparse
import json
import pathlib
import re
import sys
import xml.etree.ElementTree

SHOWN = 10


def compiled(folder, since):
    """Seconds of each object and precompiled header that Ninja compiled after `since`, by its source."""
    log = folder / ".ninja_log"
    seconds = {}
    if not log.exists():
        return seconds
    for line in log.read_text().splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) != 5:  # Ninja was stopped while writing
            continue
        begin, end, written, output, _ = fields
        # Times are milliseconds; `written` is the output's own time, in nanoseconds.
        if output.endswith((".o", ".gch")) and int(written) >= since * 1_000_000_000:
            source = re.sub(r"^.*\.dir/", "", output).removesuffix(".o").removeprefix("__/")
            if output.endswith(".gch"):  # each target's has the same name
                source = output
            seconds[source] = (int(end) - int(begin)) / 1000
    return seconds


class Entry:
    """An entry of ctest: a process with one or more cases."""

    def __init__(self, element):
        self.name = element.get("name")
        self.seconds = float(element.get("time") or 0)
        output = element.findtext("system-out") or ""
        self.folder = self.name.split(".")[0]
        self.cases = [(f"{self.folder}.{case}", int(ms) / 1000)
                      for case, ms in re.findall(r"\[       OK \] (\S+) \((\d+) ms\)", output)]
        # GoogleTest prints the reason before the case's SKIPPED line.
        self.skipped = re.findall(r"Skipped\n(.*?)\n+\[  SKIPPED \] (\S+) \(", output, re.DOTALL)
        # A case that ends its process with status 0 also ends the cases after it.
        self.cut_short = ("[==========] Running " in output
                          and "test output was removed since it exceeds" not in output
                          and not re.search(r"\[=+\] \d+ tests? from .* ran\. \(", output))
        # A test that prints no cases counts as one case.
        if not self.cases and not self.skipped:
            self.cases = [(self.name, self.seconds)]


def tested(folder):
    results = folder / "tests.xml"
    if not results.exists():
        return []
    root = xml.etree.ElementTree.parse(results).getroot()
    return [Entry(element) for element in root.iter("testcase")]


def by_folder(entries):
    folders = {}
    for entry in entries:
        cases, seconds = folders.get(entry.folder, (0, 0.0))
        folders[entry.folder] = (cases + len(entry.cases), seconds + entry.seconds)
    return {name: {"cases": cases, "seconds": round(seconds, 2)}
            for name, (cases, seconds) in sorted(folders.items())}


def slowest(pairs):
    return [{"name": name, "build": build, "seconds": round(seconds, 2)}
            for name, build, seconds in sorted(pairs, key=lambda row: -row[2])[:SHOWN]]


def gathered(options):
    sources, cases, skipped, cut_short, builds = [], [], [], [], {}
    for folder in options.folders:
        objects = compiled(folder, options.since)
        results = tested(folder)
        sources += [(name, folder.name, seconds) for name, seconds in objects.items()]
        cases += [(name, folder.name, seconds) for entry in results for name, seconds in entry.cases]
        skipped += [{"name": f"{entry.folder}.{name}", "build": folder.name, "reason": reason}
                    for entry in results for reason, name in entry.skipped]
        cut_short += [{"name": entry.name, "build": folder.name}
                      for entry in results if entry.cut_short]
        builds[folder.name] = {
            "compiled": len(objects),
            "compile_seconds": round(sum(objects.values()), 2),
            "tests": by_folder(results),
        }
    phases = [line.split("\t") for line in options.phases.read_text().splitlines()]
    return {
        "phases": {name: float(seconds) for name, seconds in phases},
        "builds": builds,
        "slowest_sources": slowest(sources),
        "slowest_cases": slowest(cases),
        "skipped": skipped,
        "cut_short": cut_short,
    }


def clock(seconds):
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


def show(times):
    print("\ntime of each phase (min:s)")
    for name, seconds in times["phases"].items():
        print(f"  {name:<24}{clock(seconds)}")
    print(f"  {'total':<24}{clock(sum(times['phases'].values()))}")

    builds = times["builds"]
    print("\ncompiled" + "".join(f"{name:>20}" for name in builds))
    print("        " + "".join(
        f"{build['compiled']:>8} in {build['compile_seconds']:7.0f} s" for build in builds.values()))

    folders = sorted({name for build in builds.values() for name in build["tests"]})
    print("\nseconds (cases) of each folder of tests")
    print("  " + " " * 26 + "".join(f"{name:>18}" for name in builds))
    for folder in folders:
        row = f"  {folder:<26}"
        for build in builds.values():
            part = build["tests"].get(folder)
            row += f"{part['seconds']:>11.1f} ({part['cases']:4d})" if part else " " * 18
        print(row)
    totals = [sum(part["cases"] for part in build["tests"].values()) for build in builds.values()]
    print(f"  {'total cases':<26}" + "".join(f"{total:>18d}" for total in totals))

    for title, key in (("slowest sources", "slowest_sources"), ("slowest cases", "slowest_cases")):
        print(f"\n{title} (s)")
        for row in times[key]:
            print(f"  {row['seconds']:7.1f}  {row['build']:<8} {row['name']}")

    print("\nskipped" if times["skipped"] else "\nnothing was skipped")
    for row in times["skipped"]:
        print(f"  {row['build']:<8} {row['name']}: {row['reason']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--phases", required=True, type=pathlib.Path)
    parser.add_argument("--json", required=True, type=pathlib.Path)
    parser.add_argument("--since", type=int, default=0)
    options = parser.parse_args()
    times = gathered(options)
    options.json.write_text(json.dumps(times, indent=2) + "\n")
    show(times)
    print(f"\nwritten to {options.json}")
    for row in times["cut_short"]:
        print(f"error: {row['build']} {row['name']} ended before its last case")
    return 1 if times["cut_short"] else 0


sys.exit(main())
