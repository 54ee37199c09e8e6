#!/usr/bin/env python3
"""A table of what run_torch_peers.sh has measured: the median over rounds of each round's median step.

  summarize_torch.py LOG
"""

import json
import statistics
import sys


def main():
    rounds = {}
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            run = json.loads(line)
            rounds.setdefault(run["name"], []).append(
                (statistics.median(run["seconds"]), statistics.median(run["cpu_seconds"])))
    medians = {name: statistics.median(seconds for seconds, _ in runs) for name, runs in rounds.items()}
    print("| | ms a step, median (range of rounds) | CPU ms of rank 0's process | beside |")
    print("|---|---|---|---|")
    for name, runs in rounds.items():
        alone = name in ("pytorch single", "libtorch alone") or ", 1 " in name
        base = "libtorch alone" if alone else "pytorch ddp"
        seconds = [1000 * of for of, _ in runs]
        cpu = 1000 * statistics.median(of for _, of in runs)
        print(f"| {name} | {1000 * medians[name]:.1f} ({min(seconds):.1f} to {max(seconds):.1f}) | {cpu:.1f} | "
              f"{medians[name] / medians[base]:.3f} x {base} |")


main()
