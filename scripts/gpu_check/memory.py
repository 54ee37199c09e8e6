#!/usr/bin/env python3
"""Reports the memory of a model for scripts/gpu_check.sh, part memory.

  memory.py PREFIX RANKS PYTORCH SHAPE

PREFIX-plan.json is the plan of all strategies, PREFIX-STRATEGY.json the comparison of one strategy;
PREFIX.statuses has each strategy's exit status. PYTORCH is the bytes of PyTorch's DDP, or the reason
why there are none. Prints a Markdown table; writes the bars' results to PREFIX.results, and the
figures of size SHAPE to PREFIX.rows.
"""

import json
import os
import sys

MIB = 2**20


def mib(number):
    return f"{number / MIB:.0f}"


def planned_peaks(plan):
    """The peaks of every rank, by strategy."""
    return {
        strategy["name"]: [
            rank["planned_peak_bytes"]
            for rank in strategy["ranks"]
            for _ in range(rank["count"])
        ]
        for strategy in plan["strategies"]
    }


def measured(path):
    """The peaks of every rank, and the most bytes that a device's ledger leaves unattributed."""
    (strategy,) = json.load(open(path))["strategies"]
    rows = [device["rows"]["unattributed"] for device in strategy["devices"]]
    return [rank["peak_bytes"] for rank in strategy["ranks"]], max(map(abs, rows), default=None)


def without(status):
    return "does not fit" if status == 3 else f"none, status {status}"


def main():
    prefix, ranks, torch, shape = sys.argv[1:]
    model = os.path.basename(prefix).removeprefix("memory-")  # the id of its bar: large, xl
    planned = planned_peaks(json.load(open(f"{prefix}-plan.json")))
    other = f"{mib(int(torch))} MiB" if torch.isdigit() else torch
    results, figures, rows = [], [], []

    def figure(name, value, unit, bar):
        rows.append(f"figure\tgpt2-{model}, {name}\t{shape}, {ranks} ranks\t{value}\t{unit}\t{bar}\t\n")

    if torch.isdigit():
        figure("PyTorch DDP", int(torch) / MIB, "MiB", model)
    print(f"| strategy, {ranks} ranks | planned, MiB a rank | measured, MiB a rank "
          "| unattributed, MiB | PyTorch DDP, max_memory_allocated |")
    print("|---|---|---|---|---|")
    for line in open(f"{prefix}.statuses"):
        name, status = line.split()
        plan = planned[name]
        row = [name, f"{mib(max(plan))} at most, {mib(min(plan))} at least"]
        figure(f"{name}, planned for the fullest rank", max(plan), "bytes", model)
        if status != "0":
            print(f"| {' | '.join(row)} | {without(int(status))} | | {other} |")
            continue
        peaks, unattributed = measured(f"{prefix}-{name}.json")
        if peaks == plan:
            results.append("planned same")
            row.append("the same, to the byte")
        else:
            results.append(f"planned differs {name} of {ranks} ranks: {peaks}, planned {plan}")
            row.append(f"{mib(max(peaks))} at most, {mib(min(peaks))} at least")
        figure(f"{name}, measured on the fullest rank", max(peaks), "bytes", "planned")
        if unattributed is not None:
            results.append(f"unattributed {unattributed}")
            figure(f"{name}, unattributed", unattributed / MIB, "MiB", "unattributed")
        row.append("no ledger" if unattributed is None else f"{unattributed / MIB:.1f}")
        figures.append(f"{name} {mib(max(peaks))}")
        print(f"| {' | '.join(row)} | {other} |")
    print()
    results.append(f"figures {', '.join(figures)} MiB at most a rank; PyTorch {other}")
    open(f"{prefix}.results", "w").write("\n".join(results) + "\n")
    open(f"{prefix}.rows", "w").writelines(rows)


if __name__ == "__main__":
    main()
