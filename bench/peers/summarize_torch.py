#!/usr/bin/env python3
"""Prints a table of the times of bench/run_torch_peers.sh.

  summarize_torch.py LOG

A round holds one run of each program. A time is the median of a run; a ratio compares runs of one
round, since a disturbance of one program often affects the next. The table shows medians over the
rounds.
"""

import collections
import json
import statistics
import sys


def ratio(times, name, base):
    return statistics.median(a / b for a, b in zip(times[name], times[base]))


def main():
    seconds = collections.defaultdict(list)
    cpu = collections.defaultdict(list)
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            run = json.loads(line)
            seconds[run["name"]].append(statistics.median(run["seconds"]))
            cpu[run["name"]].append(statistics.median(run["cpu_seconds"]))
    print("| step | ms, median (range) | CPU ms of rank 0's process | / | | by CPU |")
    print("|---|---:|---:|---|---:|---:|")
    for name, times in seconds.items():
        alone = name in ("pytorch single", "libtorch alone") or ", 1 " in name
        bases = ["libtorch alone" if alone else "pytorch ddp"]
        if "zero3" in name and not alone and "pytorch fsdp2" in seconds:
            bases.append("pytorch fsdp2")
        for base in bases:
            by_cpu = "" if "2 threads" in name else f"{ratio(cpu, name, base):.3f}"  # of both ranks
            print(f"| {name} | {1e3 * statistics.median(times):.1f} ({1e3 * min(times):.1f} to "
                  f"{1e3 * max(times):.1f}) | {1e3 * statistics.median(cpu[name]):.1f} | {base} | "
                  f"{ratio(seconds, name, base):.3f} | {by_cpu} |")


main()
