"""Part train: GPT-2 124M on one rank beside PyTorch, and on four ranks that share the card; gpt2-xl with options that
save memory, beside PyTorch; gpt2-large whose update or state is on the host."""

import json

import steps
from run import NotMeasured, quotient, told

NO_TORCH = "no python3 with PyTorch 2"
SAVING = ("", "--recompute layer-norm", "--recompute gelu", "--recompute gelu,layer-norm", "--head-rows 1024")


def run(part):
    part.timed = True
    gpt2 = OneRank(part)
    gpt2.search()
    if not gpt2.batch:
        return
    gpt2.at_batches()
    for which in ("same", "own"):
        with part.judging(f"{which}_batch"):
            gpt2.judge_speed(which)
    with part.judging("ahead"):
        gpt2.judge_ahead()
    compare_kept(part)
    with part.judging("offload"):
        compare_offload(part)
    with part.judging("zero3"):
        gpt2.compare_sharded((gpt2.common + 3) // 4)


def peaks_of(step):
    return json.dumps(step.peaks, separators=(",", ":")) if step.peaks else "not told"


def recorded(part):
    """The options for the algorithms of products that part kernels recorded; none if it did not."""
    file = part.call.work / "products.json"
    return ["--products", file] if file.exists() else []


# --- One rank --------------------------------------------------------------------------------------


def largest_batch(top, train):
    """The largest batch up to `top` that fits: `top` itself, or the result of bisecting below it. Only lack of memory
    makes it smaller. Returns 0 and why if there is none; and the last step."""
    fits, over, batch = 0, top + 1, top
    while over - fits > 1:
        step = train(batch)
        if step.status not in (0, 3):
            return 0, f"{step.result.reason} at batch {batch}", step
        fits, over = (batch, over) if step.status == 0 else (fits, batch)
        batch = (fits + over) // 2
    return fits, "" if fits else "not even a batch of 1 fits", step


class OneRank:
    """GPT-2 on one rank: its steps beside PyTorch's, by batch."""

    def __init__(self, part):
        self.part, self.model, self.rows = part, steps.gpt2(part), []
        self.top, self.count = (2, 4) if part.call.emulated else (64, 30)
        self.compile = [] if part.call.emulated else ["--compile"]
        self.torch_problem = None if part.call.has_torch() else NO_TORCH

    def ours(self, batch, count, *options, allowed=()):
        name = f"single-{batch}-{count}{str(options[0]) if options else ''}"
        return steps.train(self.part, name, self.model, batch, count, *options, allowed=allowed)

    def theirs(self, batch, count, allowed=()):
        return steps.torch(self.part, self.model, batch, count, *self.compile, allowed=allowed)

    def search(self):
        """Finds the batches that fit."""
        part, shape = self.part, f"{self.model.words}, up to {self.top}"
        self.batch, problem, step = largest_batch(self.top, lambda batch: self.ours(batch, 3, allowed=(3,)))
        if problem:
            for bar in ("same_batch", "own_batch", "ahead"):
                part.judge(bar, "not measured", f"tessera: {problem}", step.result.shown)
            return
        self.common = self.batch
        part.figure("GPT-2 on one rank, tessera, largest batch that fits", shape, self.batch, "sequences")
        if not self.torch_problem:
            self.their_batch, problem, step = largest_batch(self.top, lambda batch: self.theirs(batch, 3, (3,)))
            self.torch_problem = f"PyTorch: {problem}" if problem else None
        if not self.torch_problem:
            part.figure("GPT-2 on one rank, PyTorch, largest batch that fits", shape, self.their_batch, "sequences")
            self.common = min(self.batch, self.their_batch)

    def measure(self, name, batch, step):
        """Adds a row to the table."""
        shape, speed = f"{self.model.words}, batch {batch}", step.speed
        self.rows.append((name, batch, told(speed), step.peak if name == "PyTorch" and step.peaks else peaks_of(step)))
        self.part.figure(f"GPT-2 on one rank, {name}", shape, speed, "tokens/s",
                         **(steps.planned(self.model, batch, step.seconds) if name == "tessera" else {}))
        if name == "PyTorch":  # what its allocator takes varies from run to run
            self.part.figure(f"GPT-2 on one rank, {name}, peak", shape, step.peak and step.peak // 2**20, "MiB")
        else:
            self.part.figure(f"GPT-2 on one rank, {name}, peak", shape, step.peak, "bytes")
        return step

    def measure_ours(self, batch):
        """Measures the ways to make a step: (way, step) of the plain one or the one as a graph, whichever is faster, and
        the step with recorded products, or None."""
        with_products = recorded(self.part)  # the algorithms may be another card's: status 2
        best = self.measure("tessera, recorded products", batch, self.ours(
            batch, self.count, *with_products, allowed=(2,))) if with_products else None
        plain = self.measure("tessera", batch, self.ours(batch, self.count))
        graph = self.measure("tessera, a step as one graph", batch, self.ours(batch, self.count, "--graph"))
        if (graph.speed or 0) > (plain.speed or 0):
            return ("a step as one graph", graph), best
        return ("a plain step", plain), best

    def at_batches(self):
        """Both at the batch that fits both, and each at its own batch if that is larger."""
        self.same, self.recorded = self.measure_ours(self.common)
        self.own = self.same if self.batch == self.common else self.measure_ours(self.batch)[0]
        self.their_same = self.their_own = None
        if not self.torch_problem:
            def at(batch):
                return self.measure("PyTorch", batch, self.theirs(batch, self.count)).speed
            self.their_same = at(self.common)
            self.their_own = self.their_same if self.their_batch == self.common else at(self.their_batch)
        self.part.table(("one rank", "batch", "tokens/s, median of the later half", "peak bytes"), self.rows)

    def judge_speed(self, which):
        (_, step), theirs = (self.same, self.their_same) if which == "same" else (self.own, self.their_own)
        if step.speed is None or theirs is None:
            why = self.torch_problem or "one of them gave no figure"
            raise NotMeasured(f"{why}; tessera {told(step.speed)}, PyTorch {told(theirs)}", step.result.shown)
        batches = f"batch {self.common}"
        text = f"tessera {told(step.speed)}, PyTorch {told(theirs)}, both at {batches}"
        if which == "own":
            batches = f"batch {self.batch} and {self.their_batch}"
            text = f"tessera {told(step.speed)} at batch {self.batch}, PyTorch {told(theirs)} at batch {self.their_batch}"
        self.part.figure(f"GPT-2 on one rank, tessera / PyTorch at {which} batch", f"{self.model.words}, {batches}",
                         quotient(step.speed, theirs), "ratio", f"{which}_batch")
        self.part.at_least(f"{which}_batch", step.speed, theirs, text, step.result.shown)

    def judge_ahead(self):
        """Judges the goal for the largest batch by the fastest step, with or without recorded products."""
        (way, step), products, theirs = self.same, self.recorded, told(self.their_same)
        text = f"tessera {told(step.speed)} by {way}, {told(products and products.speed)} by one with recorded products"
        if products and (products.speed or 0) > (step.speed or 0):
            way, step = "a step with recorded products", products
        if self.torch_problem:
            raise NotMeasured(f"{self.torch_problem}; {text}", step.result.shown)
        if self.common != self.top:
            raise NotMeasured(f"batch {self.top} does not fit both; at batch {self.common} {text}, PyTorch {theirs}",
                              step.result.shown)
        ratio = quotient(step.speed, self.their_same)
        goal = "reached" if (ratio or 0) >= 1.25 else "not reached"
        self.part.figure("GPT-2 on one rank, the fastest of tessera / PyTorch", f"{self.model.words}, batch {self.top}",
                         ratio, "ratio", "ahead")
        self.part.at_least("ahead", ratio, 1.15, f"{told(ratio, 'no ratio')} by {way}, goal 1.25 {goal}; {text}, "
                           f"PyTorch {theirs}", step.result.shown, best=True)

    def compare_sharded(self, batch):
        """Compares zero3 and hybrid with ddp, on 4 ranks that share the card."""
        told_steps, shape = [], f"{self.model.words}, batch {batch} each"
        for strategy in ("ddp", "zero3", "hybrid"):
            groups = ["--shard-group", 2] if strategy == "hybrid" else []
            step = steps.train(self.part, f"{strategy}-{batch}", self.model, batch, (self.count + 1) // 2, "--ranks", 4,
                               "--strategy", strategy, *groups).needed(f"{strategy}: ")
            told_steps.append(f"{strategy}: {peaks_of(step)} bytes, {told(step.seconds)} s")
            self.part.figure(f"GPT-2 on 4 ranks, {strategy}, peak", shape, step.peak, "bytes", "zero3")
            self.part.figure(f"GPT-2 on 4 ranks, {strategy}, a step", shape, step.seconds, "s", "zero3")
        self.part.judge("zero3", "measured", f"batch {batch} each; {'; '.join(told_steps)}", step.result.shown)


# --- gpt2-xl with options that save memory ---------------------------------------------------------


class Kept:
    """Steps of gpt2-xl with remainders of master weights, by the name of their options."""

    def __init__(self, part):
        self.part, self.model, self.steps = part, steps.xl(part), {}
        self.batch, self.count = (1, 6) if part.call.emulated else (8, 12)
        self.words, self.torch, self.torch_problem = f"{self.model.words}, batch {self.batch}", None, NO_TORCH

    def train(self, name, *options, products=()):
        """Status 2 may be an error of recorded products: they may be another card's."""
        label = "kept-" + "".join(c for c in name if c.isalnum())
        remainder = ["--master-weights", "remainder", *options]
        step = steps.train(self.part, label, self.model, self.batch, self.count, *remainder, *products,
                           allowed=(2, 3) if products else (3,))
        self.steps[name] = step
        plan = {} if products else steps.planned(self.model, self.batch, step.seconds, *remainder)
        self.part.figure(f"{name}, a step", self.words, step.seconds, "s", **plan)
        self.part.figure(f"{name}, peak", self.words, step.peak, "bytes")

    def train_torch(self):
        compiled = [] if self.part.call.emulated else ["--compile"]
        step = steps.torch(self.part, self.model, self.batch, self.count, *compiled)
        if not step.peaks:
            self.torch_problem = f"PyTorch: {step.result.reason}"
            return
        self.torch, self.torch_problem = step, None
        self.part.figure("PyTorch, peak beside remainders", self.words, step.peak // 2**20, "MiB")
        self.part.figure("PyTorch, beside remainders", self.words, step.speed, "tokens/s")

    def fastest(self):
        """The fastest run with fewer bytes than PyTorch's; of all, if PyTorch gave none; None if there is none."""
        small = [name for name, step in self.steps.items() if step.speed is not None
                 and (not self.torch or step.peak < self.torch.peak)]
        return max(small, key=lambda name: self.steps[name].speed, default=None)

    def judge_bytes(self, name):
        step = self.steps[name]
        step.needed(f"{name}: ")
        if not self.torch:
            raise NotMeasured(f"{self.torch_problem}; tessera {step.peak} bytes", step.result.shown)
        text = f"tessera {step.peak} bytes, PyTorch {self.torch.peak}"
        self.part.at_most("kept", step.peak, self.torch.peak, text, step.result.shown)

    def judge_speed(self, plain):
        """Judges the fastest run; `plain` is the fastest without recorded products."""
        name, part = self.fastest(), self.part
        if name is None and self.torch and any(step.peaks for step in self.steps.values()):
            every = "; ".join(f"{each} {step.peak}" for each, step in self.steps.items() if step.peaks)
            part.at_least("ahead_xl", 0, 1.08, f"no run holds fewer bytes than PyTorch's {self.torch.peak}: {every}",
                          best=True)
            return
        if name is None:
            raise NotMeasured("no run of tessera gave figures")
        step, text = self.steps[name], self.told(name, plain)
        if not self.torch:
            raise NotMeasured(f"{self.torch_problem}; {text}", step.result.shown)
        ratio = quotient(step.speed, self.torch.speed)
        part.figure("gpt2-xl with fewer bytes, tessera / PyTorch", self.words, ratio, "ratio", "ahead_xl")
        part.at_least("ahead_xl", ratio, 1.08, f"{told(ratio, 'no ratio')}: {text}; PyTorch {told(self.torch.speed)} and "
                      f"{self.torch.peak} bytes", step.result.shown, best=True)

    def told(self, name, plain):
        step, products = self.steps[name], self.steps.get(f"{plain}, recorded products")
        text = f"tessera {told(step.speed)} tokens/s and {step.peak} bytes by {name}"
        if name != plain:
            return f"{text}; {told(self.steps[plain].speed)} without them"
        if products and products.speed is not None:
            return f"{text}; {told(products.speed)} with recorded products"
        return f"{text}; no figure with recorded products"


def compare_kept(part):
    """Compares the speed and the memory of gpt2-xl, by each option that saves memory, with PyTorch's."""
    kept = Kept(part)
    for option in SAVING:
        kept.train(f"remainders{', ' if option else ''}{option}", *option.split())
    if part.call.has_torch():
        kept.train_torch()
    plain = kept.fastest()
    if plain and recorded(part):
        kept.train(f"{plain}, recorded products", *plain.removeprefix("remainders").removeprefix(", ").split(),
                   products=recorded(part))
    with part.judging("kept"):
        kept.judge_bytes("remainders, --recompute layer-norm")
    with part.judging("ahead_xl"):
        kept.judge_speed(plain)


# --- gpt2-large with its state on the host ---------------------------------------------------------


def compare_offload(part):
    """Compares steps whose update runs on the host's cores, and steps whose state the device fetches from the host, with
    steps that keep everything on the device."""
    model, batch = steps.large(part), 1 if part.call.emulated else 8
    words, seconds = f"{model.words}, batch {batch}", {}
    for offload in ("none", "state", "optimizer"):
        options = ["--offload", offload]
        step = steps.train(part, f"offload-{offload}", model, batch, 6, *options).needed(f"--offload {offload}: ")
        seconds[offload] = step.seconds
        part.figure(f"--offload {offload}, a step", words, step.seconds, "s",
                    **steps.planned(model, batch, step.seconds, *options))
        part.figure(f"--offload {offload}, peak", words, step.peak, "bytes")
    part.figure("--offload state / none, a step", words, quotient(seconds["state"], seconds["none"]), "ratio")
    times = quotient(seconds["optimizer"], seconds["none"])
    part.figure("--offload optimizer / none, a step", words, times, "ratio", "offload")
    said = "optimizer updated on the host, "
    host = "".join(f"; {line[len(said):]}" for line in step.result.log.splitlines() if line.startswith(said))
    part.at_most("offload", times, 3.5, f"{told(times, 'no')} times: {told(seconds['optimizer'], 'no')} s, without "
                 f"{told(seconds['none'], 'no')} s{host}", step.result.shown)
