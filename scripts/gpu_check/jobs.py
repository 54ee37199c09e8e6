"""Parts nccl and multi: jobs of processes that use this machine's NCCL, on one card and on several."""

import json
import os
import re

import hidden
import steps
from kernels import amount, bench
from run import NO_TIME, NotMeasured, told

LAUNCH = "scripts/nccl_one_gpu.sh"
DUPLICATE = r"duplicate gpu|same (cuda )?device|multiple ranks.*(gpu|device)"
SECOND_WAY = "NCCL_MULTI_RANK_GPU_ENABLE"


# --- Part nccl -------------------------------------------------------------------------------------


def nccl(part):
    tests, emulated = part.call.build / "tests", part.call.emulated
    failing = next(iter(sorted(tests.rglob("failing_rank"))), None)
    if failing is None:
        part.fails(part.call.not_built("tests/nccl"))
        return
    model = steps.gpt2(part)
    train = [part.call.tessera, "train", "--device", "cuda", *model.data, *model.options, "--precision", "bf16",
             "--batch", 1, "--strategy", "zero3", "--comm", "nccl"]

    def suites(ranks):
        conformance, parity = ("*Conformance.AnEmptyBatch*", "NcclWorld*") if emulated else ("*Conformance*", "*")
        for program, cases in (("test_comm", conformance), ("nccl/test_nccl_parity", parity)):
            yield [LAUNCH, "-n", ranks, tests / program, "--gtest_brief=1", f"--gtest_filter={cases}"]

    all_pass(part, "one", "all pass", f"{LAUNCH} -n 1 ...", [[LAUNCH, "-n", 1, *train, "--steps", 4], *suites(1)])
    if joins_several(part, failing):
        lose_one(part, train)
        sizes = [2] if emulated else [2, 4]
        faults = ["--gtest_filter=NcclFault.AJobOfOneWorks:JobFault.AHealthyJob*"] if emulated else []
        all_pass(part, "suites", f"{','.join(map(str, sizes))} processes: all pass", f"{LAUNCH} -n N ...", [
            ["env", "NCCL_DEBUG=WARN", LAUNCH, "-n", 2, *train, "--steps", 4],
            *(command for ranks in sizes for command in suites(ranks)),
            [tests / "nccl/test_nccl_fault", "--gtest_brief=1", *faults]])
    os.environ.pop(SECOND_WAY, None)


def all_pass(part, bar, text, shown, commands):
    """Judges commands that must all succeed."""
    results = [part.keep(8, *command) for command in commands]
    bad = [f"`{result.shown}`: {result.reason}" for result in results if result.status not in (0, NO_TIME)]
    late = sum(result.status == NO_TIME for result in results)
    if bad:
        part.judge(bar, "NOT met", ", ".join(bad))
    elif late:
        part.judge(bar, "not measured", f"there was no time for {late} commands", shown)
    else:
        part.judge(bar, "met", text, shown)


def joins_several(part, failing):
    """Whether NCCL accepts two processes on one card: as two hosts, or directly in newer versions."""
    probe = ["NCCL_DEBUG=WARN", LAUNCH, "-n", 2, failing, "succeed", 60000]
    result = part.keep(20, "env", *probe, allowed=range(256))
    refusal = refusal_of(part, result)
    if refusal:
        os.environ[SECOND_WAY] = "1"
        result = part.keep(20, "env", f"{SECOND_WAY}=1", *probe, allowed=range(256))
    if result.status == 0:
        alone = f", with {SECOND_WAY}=1 alone; without: {refusal}" if refusal else ""
        part.judge("several", "met", f"accepted{alone}", result.shown)
        return True
    if result.status == NO_TIME:
        part.judge("several", "not measured", result.reason, result.shown)
    elif refusal:
        part.judge("several", "refused", f"NCCL: {refusal}", result.shown)
    else:
        part.fails(f"status {result.status} of `{result.shown}`")
        part.judge("several", "NOT met", f"status {result.status}, and not for a refusal of NCCL's", result.shown)
    for bar in ("suites", "lost"):
        part.judge(bar, "not measured", "no job of several processes")
    return False


def refusal_of(part, result):
    """NCCL's message if it refused two ranks on one card."""
    lines = [line for line in result.log.splitlines() if re.search(DUPLICATE, line, re.I)] if result.status else []
    return re.sub("^.*NCCL WARN *", "", part.call.plain(lines[0])) if lines else ""


def lose_one(part, train):
    result = part.keep(12, "scripts/gpu_check/lose_a_rank.sh", 3, 1, *train, "--steps", 1000000, allowed=(3,))
    said = [line for line in result.log.splitlines() if line.startswith("the others left")]
    part.figure("NCCL, from the death of a rank until the others have left", "3 processes",
                result.number(r"^the others left (\d+) ms"), "ms", "lost")
    if result.status == 0:
        part.judge("lost", "met", said[-1], result.shown)
    elif result.status == NO_TIME:
        part.judge("lost", "not measured", result.reason, result.shown)
    else:
        part.judge("lost", "NOT met", (said or [result.last])[-1], result.shown)


# --- Part multi ------------------------------------------------------------------------------------


def multi(part):
    part.timed = True
    gpus = part.call.machine.gpus()
    if gpus < 2:
        for bar in part.bars:
            part.judge(bar, "not measured", "one GPU")
        return
    job = Job(part, gpus)
    job.bandwidth("bandwidth")
    with part.judging("sharded"):
        job.sharded()
    with part.judging("hidden"):
        job.hidden()
    for bar, options, of_bench in (("priority", ["--channel-priority", "high"], ["--high-priority"]),
                                   ("spare", ["--spare-multiprocessors", 1 if part.call.emulated else 8], []),
                                   ("ctas", ["--nccl-max-ctas", 8], ["--max-ctas", 8]),
                                   ("windows", ["--nccl-windows"], ["--windows"])):
        with part.judging(bar):
            job.switched(bar, options, of_bench)


class Job:
    """Ranks that are processes, each with its own GPU."""

    def __init__(self, part, gpus):
        self.part, self.gpus, self.model, self.zero3 = part, gpus, steps.gpt2(part), None
        self.batch, self.count = (1, 4) if part.call.emulated else (8, 12)
        self.launch, self.shape = (LAUNCH, "-n", gpus, "-g"), f"{self.model.words}, batch {self.batch} each"

    def figure(self, what, value, unit, bar):
        self.part.figure(f"GPT-2 on {self.gpus} GPUs, {what}", self.shape, value, unit, bar)

    def bandwidth(self, bar, suffix="", options=()):
        """Records the benchmark's figures; returns the bandwidth of the largest all_gather in words."""
        result, samples = bench(self.part, "nccl", *options, launch=self.launch)
        widest = ""
        for one in samples:
            self.part.figure(one["name"] + suffix, one["shape"], one["value"], one["unit"], bar)
            if one["name"] == "all_gather, bus bandwidth":
                widest = f"all_gather: {amount(one)} of {one['shape']}"
        if bar == "bandwidth":
            self.part.samples += samples
            self.part.measured(bar, result, widest)
        return widest

    def train(self, name, strategy, *options):
        return steps.train(self.part, f"multi-{name}", self.model, self.batch, self.count, "--strategy", strategy,
                           *options, launch=self.launch)

    def sharded(self):
        texts = []
        for strategy in ("ddp", "zero3", *(["hybrid"] if self.gpus % 2 == 0 else [])):
            groups = ["--shard-group", self.gpus // 2] if strategy == "hybrid" else []
            step = self.train(strategy, strategy, *groups).needed(f"{strategy}: ")
            if strategy == "zero3":
                self.zero3 = step
            texts.append(f"{strategy}: {told(step.seconds)} s, {step.peak} bytes")
            self.figure(f"{strategy}, a step", step.seconds, "s", "sharded")
            self.figure(f"{strategy}, peak", step.peak, "bytes", "sharded")
        self.part.judge("sharded", "measured", "; ".join(texts), step.result.shown)

    def hidden(self):
        """Measures the hidden share of gathers in one more run of zero3, with a trace."""
        if self.zero3 is None:
            raise NotMeasured("zero3 gave no figure")
        trace = self.part.call.work / "multi-trace.json"
        result = self.part.keep(5, *self.launch, self.part.call.tessera, "train", "--device", "cuda", *self.model.data,
                                *self.model.options, "--precision", "bf16", "--batch", self.batch,
                                "--strategy", "zero3", "--steps", 4, "--trace", trace, makes=[trace]).needed()
        share = hidden.share_of(json.loads(trace.read_text()))
        if isinstance(share, str):
            raise NotMeasured(share, result.shown)
        self.part.figure(f"gathers hidden, zero3 on {self.gpus} GPUs", self.shape, round(share, 3), "ratio", "hidden")
        self.part.judge("hidden", "measured", f"{share:.3f} of their time", result.shown)

    def switched(self, bar, options, of_bench):
        """Compares runs with and without an option of `tessera train`, and of the benchmark."""
        if self.zero3 is None:
            raise NotMeasured("zero3 without it gave no figure")
        step, name = self.train(bar, "zero3", *options), " ".join(map(str, options))
        if step.status != 0:
            raise NotMeasured(f"{step.result.reason}: {step.result.last}", step.result.shown)
        self.figure(f"zero3, a step, {name}", step.seconds, "s", bar)
        widest = self.bandwidth(bar, f", {name}", of_bench) if of_bench else ""
        text = f"{told(step.seconds)} s, without {told(self.zero3.seconds)} s{widest and f'; {widest}'}"
        self.part.judge(bar, "measured", text, step.result.shown)
