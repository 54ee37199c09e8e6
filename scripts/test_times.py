#!/usr/bin/env python3
"""Prints what took how long in a run of scripts/test.sh, and keeps it as JSON.

    scripts/test_times.py BUILD_FOLDER... --phases FILE --json FILE

Each BUILD_FOLDER holds Ninja's log (.ninja_log) and ctest's results (tests.xml). FILE of --phases has
a line a phase: its name, a tab, its seconds. Only what ran after --since (seconds since 1970, as date
+%s prints) counts as compiled in this run.
"""
import argparse
import json
import pathlib
import re
import xml.etree.ElementTree

SHOWN = 10


def compiled(folder, since):
    """Seconds of each object that Ninja compiled since then, by its source."""
    log = folder / ".ninja_log"
    seconds = {}
    if not log.exists():
        return seconds
    for line in log.read_text().splitlines()[1:]:
        begin, end, written, output, _ = line.split("\t")
        # Times are milliseconds; `written` is the output's own time, in nanoseconds.
        if output.endswith(".o") and int(written) >= since * 1_000_000_000:
            source = re.sub(r"^.*\.dir/", "", output).removesuffix(".o").removeprefix("__/")
            seconds[source] = (int(end) - int(begin)) / 1000
    return seconds


def tested(folder):
    """Cases of ctest: name and seconds."""
    results = folder / "tests.xml"
    if not results.exists():
        return []
    cases = xml.etree.ElementTree.parse(results).getroot().iter("testcase")
    return [(case.get("name"), float(case.get("time"))) for case in cases]


def by_folder(cases):
    folders = {}
    for name, seconds in cases:
        count, total = folders.get(name.split(".")[0], (0, 0.0))
        folders[name.split(".")[0]] = (count + 1, total + seconds)
    return {name: {"entries": count, "seconds": round(total, 2)}
            for name, (count, total) in sorted(folders.items())}


def slowest(pairs):
    return [{"name": name, "build": build, "seconds": round(seconds, 2)}
            for name, build, seconds in sorted(pairs, key=lambda row: -row[2])[:SHOWN]]


def gathered(options):
    sources, cases, builds = [], [], {}
    for folder in options.folders:
        objects = compiled(folder, options.since)
        results = tested(folder)
        sources += [(name, folder.name, seconds) for name, seconds in objects.items()]
        cases += [(name, folder.name, seconds) for name, seconds in results]
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
        "slowest_tests": slowest(cases),
    }


def clock(seconds):
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


def show(times):
    print("\nwhat took how long (min:s)")
    for name, seconds in times["phases"].items():
        print(f"  {name:<24}{clock(seconds)}")
    print(f"  {'in all':<24}{clock(sum(times['phases'].values()))}")

    builds = times["builds"]
    print("\ncompiled" + "".join(f"{name:>20}" for name in builds))
    print("        " + "".join(
        f"{build['compiled']:>8} in {build['compile_seconds']:7.0f} s" for build in builds.values()))

    folders = sorted({name for build in builds.values() for name in build["tests"]})
    print("\nfolder of tests, seconds (entries)")
    print("  " + " " * 26 + "".join(f"{name:>18}" for name in builds))
    for folder in folders:
        row = f"  {folder:<26}"
        for build in builds.values():
            part = build["tests"].get(folder)
            row += f"{part['seconds']:>11.1f} ({part['entries']:4d})" if part else " " * 18
        print(row)

    for title, key in (("slowest sources", "slowest_sources"), ("slowest tests", "slowest_tests")):
        print(f"\n{title} (s)")
        for row in times[key]:
            print(f"  {row['seconds']:7.1f}  {row['build']:<8} {row['name']}")


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
    print(f"\nkept in {options.json}")


main()
