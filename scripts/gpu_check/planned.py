"""Parts predictions and plans: figures beside those before a change, and steps beside `tessera plan --time`."""

import json
import re

import document
import steps
from kernels import bench
from run import quotient, told

OLD = "docs/benchmarks/gpu-2026-11-22.json"
# Options that have a prediction. One that this build lacks is reported.
OPTIONS = ("--graph", "--recompute block", "--recompute gelu", "--recompute layer-norm", "--master-weights remainder",
           "--dropout 0.1")
STEPS_OF = ("train", "decoder", "predictions")  # the parts whose steps part plans compares


# --- Part predictions ------------------------------------------------------------------------------


def predictions(part):
    part.timed = True
    beside_old_run(part)
    switched_steps(part)


def beside_old_run(part):
    kernels = next(each for each in document.read(OLD)["parts"] if each["name"] == "kernels")
    old, rows = {(figure["name"], figure["unit"]): figure["value"] for figure in reversed(kernels["figures"])}, []
    for group in ("memory", "attention", "adamw"):
        result, samples = bench(part, group)
        for one in samples:
            now, unit, then = one["value"], one["unit"], old.get((one["name"], one["unit"]))
            rows.append((one["name"], f"{told(then)} {unit if then else ''}", f"{told(now)} {unit}",
                         told(quotient(now, then), "")))
            part.figure(one["name"], one["shape"], now, unit, "before")
    if not rows:
        part.judge("before", "not measured", result.reason, result.shown)
        return
    device = kernels["machine"]["device"].split(",")[0]
    part.table(("", f"2026-11-22, {device}", "now", "now / then"), rows)
    part.judge("before", "measured", "the table below", f"{part.call.bench} memory")


def switched_steps(part):
    model, (batch, count) = steps.gpt2(part, 50304), (2, 4) if part.call.emulated else (64, 20)

    def step(bar, *options):
        label = "".join(c for c in "".join(options) if c.isalnum()) or "plain"
        one = steps.train(part, f"predictions-{label}", model, batch, count, *options)
        ms = one.seconds and float(f"{1000 * one.seconds:.4g}")
        name = f"GPT-2 on one rank, a step{', ' if options else ''}{' '.join(options)}"
        part.figure(name, f"{model.words}, batch {batch}", ms, "ms", bar,
                    **steps.planned(model, batch, one.seconds, *options))
        return ms, one.result

    plain, result = step("step")
    part.measured("step", result, plain and f"{told(plain)} ms")
    rows, help_text, measured = [], part.call.programs.ask(str(part.call.tessera), "train", "--help"), 0
    for option in OPTIONS:
        if has_option(option, help_text):
            ms, result = step("options", *option.split())
            measured += ms is not None
            rows.append((option, told(ms, "no figure"), told(plain, "no figure")))
        else:
            rows.append((option, "this build has no such option", "", ""))
    part.table(("option", "ms a step with it", "without"), rows)
    part.measured("options", result, "the table below" if measured else "", "none gave a figure")


def has_option(words, help_text):
    """Whether the help has the option and, if its value is a word, the value."""
    name, _, value = words.partition(" ")
    about = re.search(rf"^ *{name}( .*|$)(\n.*){{0,3}}", help_text, re.M)
    is_number = re.fullmatch("[0-9.]*", value)
    return bool(about and (is_number or re.search(rf"\b{value}\b", about[0])))


# --- Part plans ------------------------------------------------------------------------------------


def plans(part):
    """Compares the steps on one rank that other parts measured with their plans by a profile of the
    samples of part kernels, all of this call or of earlier ones."""
    kernels = part.call.page.part("kernels")
    if kernels is None:
        part.judge("plans", "not measured", "there are no figures of part kernels: run it first")
        return
    measured, profile = part.call.work / "measured.json", part.call.work / "machine.json"
    document.write(measured, document.of_parts([kernels]))
    made = part.keep(6, part.call.tessera, "bench", "machine", "--from", measured, "--json", profile, allowed=(2,),
                     makes=[profile])
    if made.status != 0:
        part.judge("plans", "not measured", f"no profile: {made.reason}: {made.last}", made.shown)
        return
    compared = Plans(part, profile)
    others = []
    for name in STEPS_OF:
        one = part.call.page.part(name)
        if one and origin(one) != origin(kernels):
            others.append(f"part {name} is of another device or commit than part kernels: {', '.join(origin(one))}")
        for figure in one["figures"] if one and origin(one) == origin(kernels) else []:
            if "plan" in figure:
                compared.add(f"{name}: {re.sub(', (a step|tessera)', '', figure['name'])}", figure)
    compared.judge(others)


def origin(part):
    return part["commit"], part["machine"].get("device", "")


def milliseconds(seconds):
    return float(f"{1000 * seconds:.4g}")


class Plans:
    """Steps that were measured and planned."""

    def __init__(self, part, profile):
        self.part, self.profile, self.rows, self.shown = part, profile, [], ""
        self.within = self.planned = 0
        self.outside, self.refused, self.plain = [], [], True

    def add(self, name, figure):
        file = self.part.call.work / f"plan-{len(self.rows) + 1}.json"
        result = self.part.keep(6, self.part.call.tessera, "plan", "--for", "cuda", "--precision", "bf16", "--ranks", 1,
                                "--strategy", "ddp", *figure["plan"].split(), "--time", self.profile, "--json", file,
                                allowed=(2,), makes=[file])
        measured, shape, self.shown = figure["seconds"], figure["shape"], result.shown
        row = [name, shape, told(milliseconds(measured))]
        if result.status != 0:
            self.refused.append(name)
            self.rows.append([*row, f"none: {self.part.call.plain(result.last)}", ""])
            return
        planned = json.loads(file.read_text())["strategies"][0]["seconds_per_step"]
        error = 100 * (planned / measured - 1)
        self.planned += 1
        if abs(error) > 10:
            self.outside.append(f"{name} {error:+.1f} %")
            self.plain = self.plain and not name.endswith(": GPT-2 on one rank")
        else:
            self.within += 1
        self.rows.append([*row, told(milliseconds(planned)), f"{error:+.1f} %"])
        self.part.figure(f"{name}, planned", shape, milliseconds(planned), "ms")
        self.part.figure(f"{name}, planned / measured", shape, quotient(planned, measured), "ratio")

    def judge(self, others):
        part, told_steps = self.part, f"{self.within} of {self.planned} within 10 %"
        if not self.rows:
            why = "; ".join(others) or "there are no steps of parts train, decoder and predictions: run them first"
            part.judge("plans", "not measured", why)
            return
        part.table(("step", "size", "measured, ms", "planned, ms", "error"), self.rows)
        for label, names in (("not: ", self.outside), ("not planned: ", self.refused), ("", others)):
            told_steps += f"; {label}{'; '.join(names)}" if names else ""
        if self.planned < 5:
            told_steps = f"fewer than 5 steps were measured and planned: {told_steps}"
            part.judge("plans", "not measured", told_steps, self.shown)
            return
        part.figure("steps planned within 10 %", f"of {self.planned}", self.within, "steps", "plans")
        # Variants of one model share most of their error: they alone do not meet the bar.
        part.at_least("plans", self.within if self.plain else 0, 5, told_steps, self.shown, best=True)
