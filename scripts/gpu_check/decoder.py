"""Part decoder: a step of qwen3-0.6b in bf16 on one rank, under ddp and zero3, beside its plan and beside PyTorch."""

import json

import steps
from run import NotMeasured, quotient, told

STRATEGIES = ("ddp", "zero3")
MIB = 2**20


def run(part):
    part.timed = True
    qwen = Qwen3(part)
    with part.judging("planned", "step", "beside"):
        qwen.measure()
    if qwen.runs:
        with part.judging("beside"):
            qwen.beside_torch()


class Qwen3:
    """Its steps, as `tessera compare` reports them."""

    def __init__(self, part):
        self.part, self.model, self.runs = part, steps.qwen3(part), {}
        self.batch, self.count = (1, 3) if part.call.emulated else (8, 12)
        self.shape = f"{self.model.words}, batch {self.batch}"

    def figure(self, what, value, unit, bar, **more):
        self.part.figure(f"qwen3-0.6b on one rank, {what}", self.shape, value, unit, bar, **more)

    def measure(self):
        part, file = self.part, self.part.call.work / "decoder.json"
        result = part.keep(16, part.call.tessera, "compare", "--device", "cuda", *self.model.data, *self.model.options,
                           "--ranks", 1, "--batch", self.batch, "--precision", "bf16", "--steps", self.count,
                           "--strategies", ",".join(STRATEGIES), "--json", file, allowed=(3,), makes=[file]).needed()
        self.runs = {one["name"]: one for one in json.loads(file.read_text())["strategies"]}
        differs, texts = [], []
        for name, one in self.runs.items():
            (rank,), seconds = one["ranks"], one["seconds_per_step"]
            peak, planned = rank["peak_bytes"], rank["planned_peak_bytes"]
            plan = steps.planned(self.model, self.batch, seconds) if name == "ddp" else {}
            self.figure(f"{name}, a step", seconds, "s", "step", **plan)
            self.figure(f"{name}, peak", peak, "bytes", "planned")
            self.figure(f"{name}, planned peak", planned, "bytes", "planned")
            texts.append(f"{name}: {told(seconds)} s, {peak / MIB:.0f} MiB")
            if peak != planned:
                differs.append(f"{name}: {peak}, planned {planned}")
        part.judge("planned", "NOT met" if differs else "met", "; ".join(differs) or f"under {' and '.join(self.runs)}",
                   result.shown)
        part.judge("step", "measured", f"batch {self.batch}; {'; '.join(texts)}", result.shown)

    def beside_torch(self):
        ours = self.runs["ddp"]["tokens_per_second"]
        if not self.part.call.has_torch():
            raise NotMeasured(f"no python3 with PyTorch 2; tessera {told(ours)} tokens/s")
        compiled = [] if self.part.call.emulated else ["--compile"]
        step = steps.torch(self.part, self.model, self.batch, self.count, *compiled).needed("PyTorch: ")
        ratio = quotient(ours, step.speed)
        peak = step.peak // MIB if step.peaks else None
        self.figure("PyTorch", step.speed, "tokens/s", "beside")
        self.figure("PyTorch, peak", peak, "MiB", "beside")
        self.figure("tessera / PyTorch", ratio, "ratio", "beside")
        text = f"{told(ratio)}: tessera {told(ours)} tokens/s, PyTorch {told(step.speed)} and {told(peak, 'no')} MiB"
        self.part.judge("beside", "measured", text, step.result.shown)
