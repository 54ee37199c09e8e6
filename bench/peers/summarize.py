#!/usr/bin/env python3
"""Summarizes the times of bench/run_peers.sh as medians and ratios.

A round holds one run of each program. A time is the median of a run; a ratio compares runs of one
round, since a disturbance of one program often affects the next. The summary shows medians over the
rounds.
"""

import argparse
import collections
import json
import statistics

STRATEGIES = ["dp", "ddp", "zero1", "zero2", "zero3"]
COLLECTIVES = ["all_gather", "reduce_scatter", "all_reduce"]


def add_ours(times, run):
    def add(name, seconds):
        times[name].append(seconds["median"])

    if run["bench"] == "step":
        for entry in run["strategies"]:
            add(f"tessera {entry['name']}", entry["seconds"])
            add(f"cpu tessera {entry['name']}", entry["cpu_seconds_per_rank"])
        add("limit products", run["products"]["seconds"])
    if run["bench"] == "collectives":
        for entry in run["collectives"]:
            add(f"tessera {entry['name']}", entry["seconds"])
            add(f"limit copy {entry['name']}", entry["limits"][0]["seconds"])
    if run["bench"] == "adamw":
        add("tessera adamw", run["seconds"])
        for limit in run["limits"]:
            add(f"limit adamw {limit['name']}", limit["seconds"])


def read(path):
    times = collections.defaultdict(list)
    with open(path) as lines:
        for line in lines:
            run = json.loads(line)
            if "bench" in run:
                add_ours(times, run)
            else:
                times[run["name"]].append(statistics.median(run["seconds"]))
            if "cpu_seconds" in run:
                times[f"cpu {run['name']}"].append(statistics.median(run["cpu_seconds"]))
    return times


def ratio(times, ours, peer):
    pairs = zip(times[ours], times[peer])
    return statistics.median(a / b for a, b in pairs)


def milliseconds(times, name):
    return f"{1e3 * statistics.median(times[name]):.1f}" if times[name] else "-"


def ratios_to(times, ours, peers):
    return {peer: ratio(times, ours, peer) for peer in peers if times[ours] and times[peer]}


def step_table(times):
    peers = ["pytorch single", "pytorch ddp", "tessera ddp"]
    cpu_peers = [f"cpu {peer}" for peer in peers]
    heads = ["ms"] + [f"/ {p}" for p in peers] + ["CPU ms a rank"] + [f"/ {p}" for p in cpu_peers]
    rows = ["| step | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    names = [f"tessera {s}" for s in STRATEGIES]
    for name in names + ["pytorch single", "pytorch ddp", "pytorch zero1", "limit products"]:
        found = ratios_to(times, name, peers)
        cells = [milliseconds(times, name)]
        cells += [f"{found[p]:.3f}" if p in found else "-" for p in peers]
        found = ratios_to(times, f"cpu {name}", cpu_peers)
        cells.append(milliseconds(times, f"cpu {name}"))
        cells += [f"{found[p]:.3f}" if p in found else "-" for p in cpu_peers]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def collective_table(times):
    rows = ["| 64 MiB, 2 ranks | tessera | copy | Open MPI | Gloo | / copy | / Open MPI | / Gloo |"]
    rows.append("|---|" + "---:|" * 7)
    for name in COLLECTIVES:
        ours = f"tessera {name}"
        others = [f"limit copy {name}", f"mpi {name}", f"gloo {name}"]
        found = ratios_to(times, ours, others)
        cells = [milliseconds(times, n) for n in [ours] + others]
        cells += [f"{found[o]:.3f}" if o in found else "-" for o in others]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def adamw_table(times):
    rows = ["| AdamW, 50 M parameters | ms | time of ours / this |", "|---|---:|---:|"]
    for name in sorted(n for n in times if "adamw" in n):
        rows.append(
            f"| {name} | {milliseconds(times, name)} | {ratio(times, 'tessera adamw', name):.3f} |"
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--json", required=True)
    parser.add_argument("--markdown", required=True)
    args = parser.parse_args()
    times = read(args.log)
    tables = ["Milliseconds: median over the rounds.", ""]
    for table in (step_table(times), collective_table(times), adamw_table(times)):
        tables += table + [""]
    with open(args.markdown, "w") as out:
        out.write("\n".join(tables))
    with open(args.json, "w") as out:
        summary = {
            name: {"median": statistics.median(values), "rounds": values}
            for name, values in times.items()
            if values
        }
        json.dump(summary, out, indent=2)


if __name__ == "__main__":
    main()
