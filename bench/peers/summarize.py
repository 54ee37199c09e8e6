#!/usr/bin/env python3
"""Summarizes the times of bench/run_peers.sh as medians and ratios.

A round holds one run of each program. A time is the median of a run; a ratio compares runs of one
round, since a disturbance of one program often affects the next. The summary shows medians over the
rounds. The status is 1 if the programs did not train the same model.
"""

import argparse
import collections
import json
import statistics
import sys

PRECISIONS = ["fp32", "bf16"]
# Of each PyTorch mode: its name in tables, and the ranks and strategy of ours beside it.
MODES = {
    "single": ("one process", (1, "ddp")),
    "ddp": ("DDP", (2, "ddp")),
    "zero1": ("ZeRO-1", (2, "zero1")),
    "fsdp2": ("FSDP2", (2, "zero3")),
}
COLLECTIVES = ["all_gather", "reduce_scatter", "all_reduce"]


def short(version):
    return ".".join(version.split("+")[0].split(".")[:2])


class Log:
    """times[name][round] in seconds, and the rest of what the programs say about themselves."""

    def __init__(self, path):
        self.times = collections.defaultdict(dict)
        self.losses = {}
        self.rounds = []
        self.machine = {}
        self.versions = {}
        self.models = collections.defaultdict(set)  # programs by (parameters, FLOPs)
        self.pairs = []  # (precision, ours, peer), in the order of the first round
        self.mistakes = []
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                self.add(json.loads(line))

    def add(self, run):
        if "round" in run:
            self.rounds.append(run)
        elif "bench" in run:
            self.machine = run["machine"]
            getattr(self, f"add_{run['bench']}")(run)
        elif "precision" in run:
            self.add_pytorch(run)
        else:
            self.versions.update({short(v): v for v in [run.get("version")] if v})
            words = run["name"].split()
            peer = f"gloo {short(run['version'])}" if "version" in run else words[0]
            self.put(f"{peer} {words[1]}", statistics.median(run["seconds"]))

    def put(self, name, seconds, cpu_seconds=None):
        self.times[name][self.rounds[-1]["round"]] = seconds
        if cpu_seconds is not None:
            self.put(f"cpu {name}", cpu_seconds)

    def add_step(self, run):
        ranks, precision = run["ranks"], run["precision"]
        for entry in run["strategies"]:
            name = ours_name(ranks, entry["name"], precision)
            self.put(name, entry["seconds"]["median"], entry["cpu_seconds_per_rank"]["median"])
            self.losses[name] = entry["loss"]
            self.models[run["parameters"], run["flops"]].add(name)
        self.put(products_name(ranks, precision), run["products"]["seconds"]["median"])

    def add_pytorch(self, run):
        version = short(run["version"])
        self.versions[version] = run["version"]
        label, (ranks, strategy) = MODES[run["name"].split()[1]]
        view = ", bucket view" if run["bucket_view"] else ""
        compiled = ", compiled" if run["compiled"] else ""
        name = f"PyTorch {version} {label}{view}{compiled}, {run['precision']}"
        self.put(name, statistics.median(run["seconds"]), statistics.median(run["cpu_seconds"]))
        self.losses[name] = run["loss"]
        self.models[run["parameters"], run["flops"]].add(name)
        if run["loss"] >= run["first_loss"]:
            self.mistakes.append(f"the loss of {name} does not fall")
        pair = (run["precision"], ours_name(ranks, strategy, run["precision"]), name)
        if pair not in self.pairs:
            self.pairs.append(pair)

    def add_collectives(self, run):
        for entry in run["collectives"]:
            self.put(f"tessera {entry['name']}", entry["seconds"]["median"])
            self.put(f"copy {entry['name']}", entry["limits"][0]["seconds"]["median"])

    def add_adamw(self, run):
        self.put("tessera adamw", run["seconds"]["median"])
        for limit in run["limits"]:
            self.put(f"adamw {limit['name']}", limit["seconds"]["median"])

    def check(self):
        if len(self.models) > 1:
            self.mistakes.append(f"different parameters and FLOPs: {dict(self.models)}")
        return self.mistakes

    def median(self, name):
        return statistics.median(self.times[name].values())

    def milliseconds(self, name):
        return f"{1e3 * self.median(name):.1f}" if name in self.times else "-"

    def ratios(self, ours, peer):
        mine, other = self.times.get(ours, {}), self.times.get(peer, {})
        return [mine[r] / other[r] for r in mine if r in other]

    def ratio(self, ours, peer):
        ratios = self.ratios(ours, peer)
        return f"{statistics.median(ratios):.3f}" if ratios else "-"

    def ratio_and_range(self, ours, peer):
        ratios = self.ratios(ours, peer)
        return f"{self.ratio(ours, peer)} ({min(ratios):.3f} to {max(ratios):.3f})" if ratios else "-"


def ours_name(ranks, strategy, precision):
    where = "one rank" if ranks == 1 else strategy
    return f"tessera {where}, {precision}"


def products_name(ranks, precision):
    return f"products, {ranks} rank{'s' if ranks > 1 else ''}, {precision}"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def head(log):
    first, last = log.rounds[0], log.rounds[-1]
    loads = [r["load"] for r in log.rounds]
    versions = ", ".join(log.versions[v] for v in sorted(log.versions))
    return [
        f"{log.machine.get('processor', 'unknown processor')}, {log.machine.get('cores', '?')} cores; "
        f"{first['date']} to {last['date']}; commit {first['commit']}; PyTorch {versions or 'none'}.",
        f"Medians of {len(log.rounds)} rounds; load at the beginning of a round {min(loads)} to "
        f"{max(loads)}.",
        "",
    ]


def step_table(log, precision):
    pairs = [(ours, peer) for p, ours, peer in log.pairs if p == precision]
    if not pairs:
        return []
    heads = [precision, "ms", "peer", "ms", "ours / peer (range)", "CPU ms a rank", "of the peer"]
    rows = [row(heads + ["ours / peer", "loss", "of the peer"])]
    rows.append("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for ours, peer in sorted(pairs, key=order):
        rows.append(row([
            ours.rsplit(",", 1)[0],
            log.milliseconds(ours),
            peer.rsplit(",", 1)[0],
            log.milliseconds(peer),
            log.ratio_and_range(ours, peer),
            log.milliseconds(f"cpu {ours}"),
            log.milliseconds(f"cpu {peer}"),
            log.ratio(f"cpu {ours}", f"cpu {peer}"),
            f"{log.losses[ours]:.3f}" if ours in log.losses else "-",
            f"{log.losses[peer]:.3f}",
        ]))
    limits = [log.milliseconds(products_name(ranks, precision)) for ranks in (1, 2)]
    return rows + ["", f"Products with weights alone: {limits[0]} ms on one rank, {limits[1]} on two.", ""]


def order(pair):
    """By strategy, then by version, uncompiled before compiled: names get longer."""
    strategies = [ours_name(*where, "fp32") for _, where in MODES.values()]
    return strategies.index(pair[0].rsplit(",", 1)[0] + ", fp32"), pair[1].rsplit(",", 1)[0]


def collective_table(log):
    if f"tessera {COLLECTIVES[0]}" not in log.times:
        return []
    gloos = sorted({" ".join(name.split()[:2]) for name in log.times if name.startswith("gloo ")})
    others = ["copy", "mpi"] + gloos
    title = {"mpi": "Open MPI", **{g: g.replace("gloo", "Gloo of PyTorch") for g in gloos}}
    heads = ["tessera"] + [title.get(o, o) for o in others] + [f"/ {title.get(o, o)}" for o in others]
    rows = [row(["64 MiB, 2 ranks, ms"] + heads), "|---|" + "---:|" * len(heads)]
    for name in COLLECTIVES:
        ours = f"tessera {name}"
        cells = [log.milliseconds(f"{who} {name}") for who in ["tessera"] + others]
        cells += [log.ratio(ours, f"{other} {name}") for other in others]
        rows.append(row([name] + cells))
    return rows + [""]


def adamw_table(log):
    names = sorted(name for name in log.times if "adamw" in name)
    if not names:
        return []
    rows = ["| AdamW, 50 M parameters | ms | time of ours / this |", "|---|---:|---:|"]
    for name in names:
        rows.append(row([name, log.milliseconds(name), log.ratio("tessera adamw", name)]))
    return rows + [""]


def summary(log):
    pairs = [
        {
            "precision": precision,
            "ours": ours,
            "peer": peer,
            "ratio": statistics.median(ratios),
            "rounds": ratios,
            "cpu_ratio": statistics.median(log.ratios(f"cpu {ours}", f"cpu {peer}")),
        }
        for precision, ours, peer in log.pairs
        for ratios in [log.ratios(ours, peer)]
        if ratios
    ]
    times = {
        name: {"median": log.median(name), "rounds": list(rounds.values())}
        for name, rounds in log.times.items()
    }
    return {
        "machine": log.machine,
        "versions": log.versions,
        "rounds": log.rounds,
        "losses": log.losses,
        "pairs": pairs,
        "times": times,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--json", required=True)
    parser.add_argument("--markdown", required=True)
    args = parser.parse_args()
    log = Log(args.log)
    lines = head(log)
    for precision in PRECISIONS:
        lines += step_table(log, precision)
    lines += collective_table(log) + adamw_table(log)
    with open(args.markdown, "w", encoding="utf-8") as out:
        out.write("\n".join(lines))
    with open(args.json, "w", encoding="utf-8") as out:
        json.dump(summary(log), out, indent=2)
    mistakes = log.check()
    for mistake in mistakes:
        print(f"error: {mistake}", file=sys.stderr)
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
