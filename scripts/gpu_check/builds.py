"""Parts build and test: the programs, and every CUDA test with two comparisons of losses."""

import concurrent.futures
import os
import re
import shutil

import steps
from run import NO_TIME, NotMeasured, ran_out, told

OPTIONS = ["-DCMAKE_BUILD_TYPE=Release"]
# Leaves out every component that the target does not build: cmake --install needs the files of all.
COMPONENTS = ["-DTESSERA_CUDA=ON", *(f"-DTESSERA_{name}=OFF" for name in (
    "BUILD_BENCH", "BUILD_EXAMPLES", "MPI", "EMULATED_CUDA", "C", "TORCH"))]
TARGET = "gpu_check_programs"
# Programs, the suites of each that run at a time, and the cases. The command's run one at a time: its ledgers read
# the device's free memory.
TESTS = {"kernels": ("test_kernels", 4, "*/cuda"), "device": ("cuda/test_cuda", 4, "*"),
         "comm": ("cuda/test_cuda_comm", 1, "*"), "parity": ("cuda/test_cuda_parity", 3, "*"),
         "command": ("cuda_cli/test_cuda_cli", 1, "*")}


# --- Part build ------------------------------------------------------------------------------------


def build(part):
    if part.call.given_build:
        part.note("A finished build was named: nothing is compiled.")
    elif not compile_all(part):
        return
    doctor = part.keep(60, part.call.tessera, "doctor")
    device = re.search(r"^ *(cuda:0) *(.*)", doctor.log, re.M)
    if doctor.status == NO_TIME:
        part.judge("device", "not measured", doctor.reason, doctor.shown)
    elif doctor.status != 0:
        part.judge("device", "NOT met", "tessera doctor failed", doctor.shown)
    elif device:
        part.judge("device", "met", f"{device[1]}: {device[2]}", doctor.shown)
    else:
        part.fails("no CUDA device can be used: see `not usable` above")
        part.judge("device", "NOT met", "tessera doctor names no device", doctor.shown)


def generator(programs):
    return ["-G", "Ninja"] if programs.has("ninja") else []


def configuration(call, architecture):
    """The command that configures the programs."""
    bundle = [f"-DTESSERA_BUNDLE={call.bundle}"] if call.bundle else []
    python = shutil.which(call.python)  # CMake looks for the NCCL and cuDNN wheels of this Python
    return ["cmake", "-S", ".", "-B", call.build, *OPTIONS, *COMPONENTS,
            f"-DTESSERA_CUDA_ARCHITECTURES={architecture}-real", *bundle, *generator(call.programs),
            *([f"-DPython3_EXECUTABLE={python}"] if python else [])]


def compile_all(part):
    call = part.call
    architecture = call.machine.architecture(call.work)
    if not architecture:
        part.fails("no compute capability: neither nvidia-smi nor a small CUDA program finds a device")
        part.judge("device", "NOT met", "no device was found")
        return False
    if part.keep(20, *configuration(call, architecture)).status != 0:
        return False
    jobs = ["--parallel", len(os.sched_getaffinity(0)), "--target", TARGET]
    if part.keep(12, "cmake", "--build", call.build, *jobs).status != 0:
        return False
    compile_trainer(part, architecture)
    return True


def compile_trainer(part, architecture):
    """Builds the examples' CUDA trainer as a user's own project. A failure counts, but the part continues."""
    build_folder, trainer = part.call.build, part.call.build / "cuda_trainer"
    cache = build_folder / "CMakeCache.txt"
    nvcc = re.search(r"^TESSERA_NVCC:FILEPATH=(.*)", cache.read_text() if cache.exists() else "", re.M)
    options = [*OPTIONS, f"-DCMAKE_CUDA_ARCHITECTURES={architecture}-real", *generator(part.call.programs),
               f"-DCMAKE_CUDA_COMPILER={nvcc[1] if nvcc else 'nvcc'}", f"-DCMAKE_PREFIX_PATH={build_folder}/installed",
               f"-DSOURCE={os.getcwd()}/examples/cuda_trainer.cu"]
    for lines, command in ((3, ["cmake", "--install", build_folder, "--prefix", build_folder / "installed"]),
                           (6, ["cmake", "-S", "tests/install/cuda_trainer", "-B", trainer, *options]),
                           (6, ["cmake", "--build", trainer])):
        if part.keep(lines, *command).status != 0:
            return


# --- Part test -------------------------------------------------------------------------------------


def test(part):
    rows, skipped = [], set()
    for bar, (program, jobs, cases) in TESTS.items():
        suites = run_program(part, bar, program, jobs, cases)
        if suites:
            judge_suites(part, bar, program, suites)
            rows += [(suite.name, *suite.counts, suite.seconds) for suite in suites]
            skipped.update(*(suite.skipped() for suite in suites))
    part.table(("suite", "passed", "skipped", "failed", "s"), rows)
    if skipped:
        reasons = "\n".join(f"- {each}" for each in sorted(skipped))
        part.note(f"Skipped, with the reasons that the tests give:\n\n{reasons}")
    for bar, judge in (("losses", beside_the_processor), ("trainer", own_trainer), ("bits", every_strategy)):
        with part.judging(bar):
            judge(part)


class Suite:
    """A suite of a test program, which runs in a process of its own: a crash ends only this suite."""

    def __init__(self, part, program, name, cases):
        self.part, self.name, self.filter = part, name, f"{name}.{cases}"
        self.program = part.call.build / "tests" / program
        label = f"{part.name}-{self.program.name}-{name.replace('/', '-')}"
        self.file, self.mark = part.call.work / "logs" / f"{label}.log", part.done / f"{label}.log"
        self.status, self.seconds, self.late = 0, 0, False

    def run(self):
        if self.mark.exists():
            self.file = self.mark
            return self
        left, clock = self.part.left(), self.part.call.programs.clock
        self.file.write_text("")
        if left < 5:
            self.late = True
            return self
        seconds, began = min(left, int(os.environ.get("SUITE_SECONDS", 300))), clock()
        command = [str(self.program), f"--gtest_filter={self.filter}", "--gtest_color=no"]
        self.status = self.part.call.programs.run(command, seconds, self.file, shown=False)
        self.seconds = int(clock() - began)
        self.late = seconds == left and ran_out(self.status, self.seconds, seconds)
        passed, skipped, failed = self.counts
        print(f"{self.name}: {passed} passed, {skipped} skipped, {failed} failed, {self.seconds} s", flush=True)
        if self.status == 0:
            shutil.copy(self.file, self.mark)
        return self

    @property
    def log(self):
        return self.file.read_text(errors="replace")

    @property
    def counts(self):
        """Tests by result, by lines with times; the summary has none."""
        return [len(re.findall(rf"^\[ +{result} +\] .* \(\d+ ms\)$", self.log, re.M))
                for result in ("OK", "SKIPPED", "FAILED")]

    def skipped(self):
        return [f"{test}: {reason}" for reason, test in
                re.findall(r": Skipped\n(.*)\n(?:.*\n)*?\[  SKIPPED \] (\S+) \(", self.log)]


def run_program(part, bar, program, jobs, cases):
    """Runs its suites, `jobs` at a time; if it cannot, judges the bar."""
    path, ask = part.call.build / "tests" / program, part.call.programs.ask
    if not os.access(path, os.X_OK):
        part.fails(part.call.not_built(f"tests/{program}"))
        part.judge(bar, "not measured", f"tests/{program} is not built")
        return []
    listed = ask(str(path), "--gtest_list_tests", f"--gtest_filter={cases}")
    names = re.findall(r"^([^ #\n]*)\.", listed, re.M)
    if not names:
        part.fails(f"tests/{program} cannot be started")
        part.judge(bar, "NOT met", f"tests/{program} cannot be started")
        return []
    suites = [Suite(part, program, name, cases) for name in names]
    if part.call.emulated:  # one case is enough to test this script
        suites = suites[:1]
        first = re.search(rf"^{re.escape(names[0])}\..*\n  (\S+)", listed, re.M)
        suites[0].filter = f"{names[0]}.{first[1]}"
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(Suite.run, suites))


def judge_suites(part, bar, program, suites):
    passed, skipped, failed = (sum(column) for column in zip(*(suite.counts for suite in suites)))
    for suite in suites:
        if suite.late:
            part.out_of_time(f"{program} --gtest_filter={suite.name}.*")
        elif suite.status != 0:
            failed += suite.counts[2] == 0  # the process ended by itself
            part.fails(f"`{suite.name}` of tests/{program}, status {suite.status}")
            lines = [line for line in suite.log.splitlines() if not re.match(r"\[ +(OK|RUN) ", line)]
            part.note("\n".join(["```", *lines[-30:], "```"]))
    late = sum(suite.late for suite in suites)
    text = f"{passed} passed, {skipped} skipped, {failed} failed"
    if not late:
        for what, count in (("passed", passed), ("skipped", skipped), ("failed", failed)):
            part.figure(f"tests/{program}, {what}", "", count, "tests", bar)
    if failed:
        part.judge(bar, "NOT met", text, program)
    elif late:
        part.judge(bar, "not measured", f"{text}, and no time for {late} suites", program)
    elif not passed:
        part.fails(f"no test of tests/{program} has passed")
        part.judge(bar, "not measured", text, program)
    else:
        part.judge(bar, "met", text, program)


def small_model(part):
    tiny = ["--layers", 1, "--hidden", 16, "--heads", 2, "--seq", 8, "--vocab", 256, "--batch", 1]
    return ["--data", "README.md", "--precision", "fp32", *(tiny if part.call.emulated else [])]


def beside_the_processor(part):
    """Trains the same model on the device and on the processor, and compares the losses."""
    count, losses = 5 if part.call.emulated else 50, []
    for device in ("cpu", "cuda"):
        log = part.call.work / f"losses-{device}.jsonl"
        result = part.keep(3, part.call.tessera, "train", *small_model(part), "--steps", count, "--device", device,
                           "--log", log, makes=[log]).needed()
        losses.append([step["loss"] for step in steps.rows_of(log) if "loss" in step])
    both = list(zip(*losses))
    if len(both) != count:
        raise NotMeasured(f"only {len(both)} of {count} steps have a loss", result.shown)
    apart = float(f"{max(abs(a - b) for a, b in both):.3g}")
    part.figure("fp32 losses, most apart from the processor's", f"{count} steps", apart, "loss", "losses")
    met = apart < 1e-4
    part.judge("losses", "met" if met else "NOT met",
               f"{'at most ' if met else ''}{told(apart)} apart in {count} steps", result.shown)


def own_trainer(part):
    """Runs examples/cuda_trainer.cu. The emulated module has no doubles of its kernels, cuBLAS and Thrust."""
    program = part.call.build / "cuda_trainer/cuda_trainer"
    if part.call.emulated:
        raise NotMeasured("cuBLAS, Thrust and kernels of its own have no double")
    if not os.access(program, os.X_OK):
        raise NotMeasured(part.call.not_built("cuda_trainer/cuda_trainer"))
    result = part.keep(8, program, "zero3", 2)
    apart = result.number(r"^largest difference: ([0-9.e+-]+) of the loss$")
    if result.status == NO_TIME or apart is None:
        raise NotMeasured(result.reason, result.shown)
    part.figure("CUDA trainer, plain and wrapped, most apart", "zero3, 2 ranks, 60 steps", apart, "loss", "trainer")
    if result.status == 0:
        part.judge("trainer", "met", f"at most {told(apart)} of the loss apart, bytes as planned", result.shown)
    else:
        part.judge("trainer", "NOT met", f"{told(apart)} of the loss apart, or not as planned", result.shown)


def every_strategy(part):
    """Compares all strategies. Hybrid in two groups of one rank equals ddp to the bit; larger groups add in another
    order."""
    numbers, count = ([2], 2) if part.call.emulated else ([1, 2, 4, 8], 20)
    good, most, shown = [], "0", ""
    for ranks in numbers:
        result = part.keep(4, part.call.tessera, "compare", *small_model(part), "--steps", count, "--device", "cuda",
                           "--ranks", ranks, "--shard-group", (ranks + 1) // 2).needed()
        shown = result.shown
        apart = re.search(r"^losses: bit-identical under 5 strategies.*; hybrid,.* within (\S+) of ", result.log, re.M)
        if apart:
            most = max(most, apart[1], key=float)
        if float(apart[1]) <= 1e-5 if apart else re.search("^losses: bit-identical under all", result.log, re.M):
            good.append(ranks)
    shape = f"N = {words(numbers)}, {count} steps"
    part.figure("fp32 losses, hybrid's most apart from dp's", shape, float(most), "loss", "bits")
    if good == numbers:
        part.judge("bits", "met", f"N = {words(good)}, {count} steps; hybrid at most {most} apart", shown)
    else:
        part.judge("bits", "NOT met", f"of N = {words(numbers)} only {words(good) or 'none'}", shown)


def words(numbers):
    return " ".join(map(str, numbers))
