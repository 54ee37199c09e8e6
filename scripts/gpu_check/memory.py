"""Part memory: the planned and the measured memory of each strategy, and that of PyTorch's DDP for the same shapes."""

import json

import steps
from parts import STRATEGIES

MIB = 2**20
HEAD = ("strategy, {} ranks", "planned, MiB a rank", "measured, MiB a rank", "unattributed, MiB",
        "PyTorch DDP, max_memory_allocated")


def run(part):
    emulated = part.call.emulated
    models = [Memory(part, "large", steps.large(part), 2 if emulated else 4),
              Memory(part, "xl", steps.xl(part), 2 if emulated else 8)]
    for model in models:
        model.measure(("ddp", "zero3", "hybrid") if emulated else STRATEGIES)
    judge(part, models)


class Memory:
    """A model's memory under each strategy. Each runs separately, since not all may fit."""

    def __init__(self, part, name, model, ranks):
        self.part, self.name, self.model, self.ranks = part, name, model, ranks
        self.shown, self.rows, self.peaks, self.torch_told = "", [], {}, ""
        self.same, self.differs, self.unattributed, self.must_fit = 0, [], [], 0
        self.shape = f"{steps.words_of(model.shape)}, batch 1, {ranks} ranks"

    def figure(self, what, value, unit, bar):
        self.part.figure(f"gpt2-{self.name}, {what}", self.shape, value, unit, bar)

    def measure(self, strategies):
        part, common = self.part, [*self.model.options, "--ranks", self.ranks, "--batch", 1, "--precision", "bf16"]
        file = part.call.work / f"memory-{self.name}-plan.json"
        plan = part.keep(12, part.call.tessera, "plan", "--for", "cuda", *common, "--strategies", ",".join(strategies),
                         "--shard-group", self.ranks // 2, "--json", file, makes=[file])
        if plan.status != 0:
            self.must_fit = len(strategies)
            return
        planned = {one["name"]: [rank["planned_peak_bytes"] for rank in one["ranks"] for _ in range(rank["count"])]
                   for one in json.loads(file.read_text())["strategies"]}
        results = {name: self.compare(name, common) for name in strategies}
        self.measure_torch()
        for name, (result, measured) in results.items():
            self.add(name, planned[name], result, measured)
        part.table([HEAD[0].format(self.ranks), *HEAD[1:]], self.rows)

    def compare(self, strategy, common):
        """Runs a strategy; hybrid uses two groups."""
        file = self.part.call.work / f"memory-{self.name}-{strategy}.json"
        groups = ["--shard-group", self.ranks // 2] if strategy == "hybrid" else []
        result = self.part.keep(12, self.part.call.tessera, "compare", "--device", "cuda", *self.model.data, *common,
                                "--steps", 2, "--strategies", strategy, *groups, "--json", file, allowed=(3,),
                                makes=[file])
        self.shown = result.shown
        self.must_fit += result.status != 3  # only a run that lacked memory is exempt from judgement
        return result, json.loads(file.read_text())["strategies"][0] if result.status == 0 else None

    def measure_torch(self):
        """The bytes of the same shapes in PyTorch's DDP, in a job of one process, or why there are none."""
        self.torch_told = "no python3 with PyTorch 2"
        if self.part.call.has_torch():
            step = steps.torch(self.part, self.model, 1, 3, "--ddp", lines=4)
            self.torch_told = f"{step.peak / MIB:.0f} MiB" if step.peaks else step.result.reason
            self.figure("PyTorch DDP", step.peak and step.peak / MIB, "MiB", self.name)

    def add(self, name, planned, result, measured):
        """Adds a strategy's row of the table."""
        row = [name, span(planned)]
        self.figure(f"{name}, planned for the fullest rank", max(planned), "bytes", self.name)
        if measured is None:
            why = "does not fit" if result.status == 3 else f"none, status {result.status}"
            self.rows.append([*row, why, "", self.torch_told])
            return
        peaks = [rank["peak_bytes"] for rank in measured["ranks"]]
        if peaks == planned:
            self.same += 1
        else:
            self.differs.append(f"{name} of {self.ranks} ranks: {peaks}, planned {planned}")
        self.figure(f"{name}, measured on the fullest rank", max(peaks), "bytes", "planned")
        self.peaks[name] = max(peaks)
        ledger = max((abs(device["rows"]["unattributed"]) for device in measured["devices"]), default=None)
        if ledger is not None:
            self.unattributed.append(ledger)
            self.figure(f"{name}, unattributed", ledger / MIB, "MiB", "unattributed")
        self.rows.append([*row, "the same, to the byte" if peaks == planned else span(peaks),
                          "no ledger" if ledger is None else f"{ledger / MIB:.1f}", self.torch_told])


def span(peaks):
    return f"{max(peaks) / MIB:.0f} at most, {min(peaks) / MIB:.0f} at least"


def judge(part, models):
    shown, must_fit = models[0].shown, sum(model.must_fit for model in models)
    same, differs = sum(model.same for model in models), [text for model in models for text in model.differs]
    if differs:
        part.judge("planned", "NOT met", ";".join(differs), shown)
    elif not same:
        part.judge("planned", "not measured", "nothing ran to its end")
    elif same < must_fit:
        text = f"the same in {same} of {must_fit} runs, the others have no figure"
        part.judge("planned", "not measured", text, shown)
    else:
        part.judge("planned", "met", f"in {same} of {must_fit} runs", shown)
    ledgers = [ledger for model in models for ledger in model.unattributed]
    most = max(ledgers, default=None)
    if most is None:
        part.judge("unattributed", "not measured", "no run has a ledger")
    elif most >= 64 * MIB:
        part.judge("unattributed", "NOT met", f"{most} bytes", shown)
    elif len(ledgers) < must_fit:
        part.judge("unattributed", "not measured", f"at most {most} bytes in {len(ledgers)} of {must_fit} runs", shown)
    else:
        part.judge("unattributed", "met", f"at most {most} bytes", shown)
    for model in models:
        peaks = ", ".join(f"{name} {peak / MIB:.0f}" for name, peak in model.peaks.items())
        if peaks:
            part.judge(model.name, "measured", f"{peaks} MiB at most a rank; PyTorch {model.torch_told}", model.shown)
        else:
            part.judge(model.name, "not measured", "nothing ran to its end")
