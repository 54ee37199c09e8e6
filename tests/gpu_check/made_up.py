"""A fictitious machine: every program that scripts/gpu_check.sh runs, as a function. Nothing is started and no time
passes but what a program is said to take. Settings are the arguments of Machine."""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/gpu_check"))
os.chdir(ROOT)

import main  # noqa: E402

PROGRAMS = ("tools/tessera", "bench/cuda/tessera_cuda_bench", "tests/test_comm", "tests/test_kernels",
            "tests/cuda/test_cuda", "tests/cuda/test_cuda_comm", "tests/cuda/test_cuda_parity",
            "tests/cuda_cli/test_cuda_cli", "tests/nccl/test_nccl_parity", "tests/nccl/test_nccl_fault",
            "tests/nccl/failing_rank", "cuda_trainer/cuda_trainer")


class Settings(dict):
    """What a machine does; an attribute that is not set has the default of its use."""

    def __getattr__(self, name):
        return self.get(name)

    def value(self, name, default):
        return self.get(name, default)


class Exit(Exception):
    """A program ends with a status."""


class Words:
    """The words of a command."""

    def __init__(self, words):
        self.all, self.text = words, shlex.join(words)

    def has(self, word):
        return word in self.all

    def after(self, name, default=None):
        return self.all[self.all.index(name) + 1] if name in self.all else default


class Machine:
    """Programs of scripts/gpu_check/run.py, of which every one is made up."""

    def __init__(self, **settings):
        self.settings, self.calls, self.now, self.lock = Settings(settings), [], 0.0, threading.RLock()

    def clock(self):
        return self.now

    def has(self, name):
        return name in ("nvidia-smi", "compute-sanitizer", "python3")

    def ask(self, *command):
        status, output = self.start(command)
        return output.strip() if status == 0 else ""

    def run(self, command, seconds, log, shown):
        began, slow = self.now, self.settings.slow
        if slow and re.search(slow[0], shlex.join(command)):
            self.now += slow[1]
        # What is ended early writes no file, but it has been called.
        status, output = self.start(command) if self.now - began < seconds else (124, "")
        if self.now - began >= seconds:
            self.now, status, output = began + seconds, 124, ""
        Path(log).write_text(output)
        return status

    def start(self, command):
        """The status and the output of a command; a launcher starts it for every rank."""
        with self.lock:  # suites of tests run side by side
            return self.start_alone(command)

    def start_alone(self, command):
        words = [str(word) for word in command]
        environment = {}
        if words[0] == "env":
            words = words[1:]
            while "=" in words[0]:
                name, _, value = words[0].partition("=")
                environment[name] = value
                words = words[1:]
        if words[0] == "scripts/nccl_one_gpu.sh":
            ranks, words = int(words[2]), words[3:]
            words = words[1:] if words[0] == "-g" else words
            return max((self.one(words, rank, ranks, environment) for rank in reversed(range(ranks))),
                       key=lambda result: result[0] or not result[1])
        if words[0] == "scripts/gpu_check/lose_a_rank.sh":
            named = 2 if self.settings.lost_message is None else 0
            said = f"the others left 1234 ms after rank 1 was killed, status 137; {named} of 2 named it\n"
            return (0 if named else 3), said
        return self.one(words, 0, 1, environment)

    def one(self, words, rank, ranks, environment):
        name = Path(words[0]).name
        self.calls.append(shlex.join([name, *words[1:]]))
        self.rank, self.ranks, self.environment = rank, ranks, environment
        if self.settings.killed and re.search(self.settings.killed, self.calls[-1]):
            return 137, ""
        self.said, status = [], 0
        try:
            getattr(self, name.replace("-", "_"), self.unknown)(Words(words[1:]))
        except Exit as ended:
            status = ended.args[0]
        return status, "".join(f"{line}\n" for line in self.said)

    def say(self, text):
        self.said.append(text)

    def unknown(self, words):
        raise Exit(127)

    def count(self, pattern):
        return sum(bool(re.search(pattern, call)) for call in self.calls)

    # --- tessera -----------------------------------------------------------------------------------

    def tessera(self, words):
        {"doctor": lambda _: self.say("  cuda:0   a card"), "train": self.train, "compare": self.compare,
         "plan": self.plan, "bench": self.profile, "checkpoint": lambda _: self.say("the same")}[words.all[0]](words)

    def train(self, words):
        s = self.settings
        if words.has("--help"):
            self.say("  --graph               one graph\n  --recompute R         none, block or every:K")
            return
        if words.has("--trace"):
            Path(words.after("--trace")).write_text(json.dumps(TRACE))
        if s.refuses and words.has(s.refuses):
            self.say(f"error: {s.refuses}: NCCL 2.26.5 is too old")
            raise Exit(2)
        batch, count = int(words.after("--batch", 4)), int(words.after("--steps", 2))
        if batch == s.crashes_at:
            raise Exit(1)
        if batch > s.value("ours_fits", 64):
            raise Exit(3)
        offload = words.after("--offload")
        if offload == "optimizer":
            self.say("optimizer updated on the host, by 16 threads a rank")
        step = {
            "loss": s.value("loss", 5.5) if words.after("--device") == "cuda" else 5.5,
            "seconds": {"state": 0.15, "optimizer": s.value("offloaded", 0.2)}.get(offload, 0.1),
            "tokens_per_second": 1300 if s.fast and re.search(s.fast, words.text) else s.value("ours", 1000),
            "peak_bytes": [3000000 if s.heavy and re.search(s.heavy, words.text) else 7]}
        if words.has("--log") and s.unwritten_step:
            del step["seconds"]
        if words.has("--log"):
            lines = [json.dumps({"step": i + 1, **step}) for i in range(count)]
            Path(words.after("--log")).write_text("\n".join(lines) + "\n")
        if words.has("--checkpoint"):
            folder = Path(words.after("--checkpoint")) / f"step-{count:08d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "manifest.json").write_text("{}")

    def plan(self, words):
        """With a profile every step takes as long as the usual one, and GPT-2's with its own vocabulary as well."""
        s, strategies = self.settings, words.after("--strategies", "ddp").split(",")
        seconds = s.value("planned_gpt2", 0.1) if words.after("--vocab") == "50257" else s.value("planned", 0.1)
        if words.has("--time") and words.after("--offload") == "optimizer":
            self.say("error: --time cannot plan an update on the host")
            raise Exit(2)
        if words.has("--time") and words.has("--graph"):
            self.say("error: tessera plan does not know '--graph'")
            raise Exit(2)
        write_json(words, {"strategies": [{**memory_of(name, 1000, 0), "seconds_per_step": seconds} for name in strategies]})

    def profile(self, words):
        if self.settings.no_profile or '"samples"' not in Path(words.after("--from")).read_text():
            self.say(f"error: --from {words.after('--from')}: the samples have no matmul_tn in bf16")
            raise Exit(2)
        write_json(words, {})

    def compare(self, words):
        s, names = self.settings, words.after("--strategies")
        if names:
            if names in s.value("does_not_fit", ()):
                raise Exit(3)
            write_json(words, {"strategies": [
                {**memory_of(name, s.value("peak", 1000), s.value("unattributed", 1048576)),
                 "seconds_per_step": 0.1, "tokens_per_second": s.value("ours", 1000)} for name in names.split(",")]})
        elif words.after("--shard-group") == "1":
            self.say(f"losses: {s.value('bits', 'bit-identical')} under all 6 strategies in all 20 steps (5.5 -> 4.5)")
        else:
            self.say(f"losses: {s.value('bits', 'bit-identical')} under 5 strategies in all 20 steps (5.5 -> 4.5); "
                  f"hybrid, which adds gradients group by group, within {s.value('apart', '3.0e-08')} of dp")

    # --- The benchmark and the tests ---------------------------------------------------------------

    def tessera_cuda_bench(self, words):
        if self.rank:
            return
        self.say("| a table |\n|---|")
        if words.has("--choose"):
            Path(words.after("--choose")).write_text("{}")
        samples = [one for name, group in self.groups().items() if words.has(name) for one in group]
        write_json(words, {"tessera_samples": 1, "samples": samples})

    def groups(self):
        s, vocab = self.settings, self.settings.value("vocab", 50304)
        tokens = "65536 tokens in sequences of 1024, hidden 768"
        adamw, bus = "500000000 parameters", f"{self.ranks} ranks, "
        return {
            "--choose": [sample("c_fc forward", "65536 x 3072 x 768", 0.44, "ms", ("the heuristic's first", 0.462, 1.05))],
            "adamw": [sample("AdamW, fp32 gradients", adamw, s.value("adamw", 4000), "GB/s",
                             ("device copy", 4200, s.value("adamw_ratio", 0.952))),
                      sample("AdamW, bf16 gradients", adamw, 4000, "GB/s", ("device copy", 4200, 0.952))],
            "products": [sample("c_fc forward", "65536 x 3072 x 768", 700, "TFLOP/s", ("plain cuBLASLt", 700, 1)),
                         sample("c_fc dW", "768 x 3072 x 65536", 700, "TFLOP/s",
                                ("plain cuBLASLt", 710, s.value("product", 0.986))),
                         sample("c_proj forward with residual", "65536 x 768 x 768", 0.14, "ms",
                                ("in two kernels", 0.182, 1.3)),
                         sample("wte forward", f"16384 x {vocab} x 768", 620.5, "TFLOP/s", ("plain cuBLASLt", 621, 0.999))],
            "attention": [sample("attention forward, bf16", tokens, 285, "TFLOP/s", ("product of 8192 squared", 700, 0.407))],
            "decoder": [sample("RMS norm forward, bf16", "16384 tokens, 4096", 2500, "GB/s", ("device copy", 2950, 0.847)),
                        sample("grouped attention forward, bf16", "4 sequences of 4096, 32 heads of 128, 8 of keys", 250,
                               "TFLOP/s", ("product of 8192 squared", 700, 0.357), ("equal heads, all keys", 400, 0.625))],
            "memory": [sample("squared norm, bf16", tokens, 2390, "GB/s", ("device copy", 2950, 0.81)),
                       sample("cross entropy, bf16", f"{tokens}, vocab {vocab}", 2595, "GB/s",
                              ("device copy", 3018, s.value("moved", 0.86)))],
            "collectives": [sample("all_gather", "4 ranks, 268435456 bytes each", 2956, "GB/s",
                                   ("device copies", 3004, 0.985))],
            "host": [sample("copies from the host", "", 52.5, "GB/s"), sample("copies to the host", "", 51.5, "GB/s"),
                     sample("copies from and to the host at once, each", "", 45.5, "GB/s")],
            "launches": [sample("launch of a kernel, host", "", 3.1, "us"), sample("launch of a kernel, device", "", 1.25, "us")],
            "nccl": [sample(f"{name}, {what}", f"{bus}{size} bytes", value, unit)
                     for name in ("all_gather", "reduce_scatter", "all_reduce")
                     for size, rates in ((65536, (3.25, 20.0)), (268435456, (s.value("bus", 350.25), 766.1)))
                     for what, value, unit in (("bus bandwidth", rates[0], "GB/s"), ("a call", rates[1], "us"))]}

    def suites(self, words, name):
        """A test program with one suite of two tests, the second with a parameter."""
        if words.has("--gtest_list_tests"):
            self.say("Running main() from fake\nSuite.\n  First\nSizes/Suite.\n  Second/0  # GetParam() = (1, fp32)")
        elif "=Suite." in words.text:
            self.say("[ RUN      ] Suite.First\n[       OK ] Suite.First (1 ms)")
        elif self.settings.failing_test == name:
            failed = "[  FAILED  ] Sizes/Suite.Second/0, where GetParam() = (1, fp32)"
            self.say(f"[ RUN      ] Sizes/Suite.Second/0\nnot so\n{failed} (2 ms)\n[  FAILED  ] 1 test, listed below:\n{failed}")
            raise Exit(1)
        elif self.settings.skipping_test == name:
            self.say("[ RUN      ] Sizes/Suite.Second/0\na.cpp:1: Skipped\nno such device\n\n"
                  "[  SKIPPED ] Sizes/Suite.Second/0 (1 ms)")
        else:
            self.say("[ RUN      ] Sizes/Suite.Second/0\n[       OK ] Sizes/Suite.Second/0 (1 ms)")

    def __getattr__(self, name):
        if name in ("test_kernels", "test_cuda", "test_cuda_comm", "test_cuda_parity", "test_cuda_cli"):
            return lambda words: self.suites(words, name)
        raise AttributeError(name)

    def cuda_trainer(self, words):
        self.say(f"as planned, to the byte\nlargest difference: {self.settings.value('trainer', '2.1e-06')} of the loss")
        raise Exit(self.settings.value("trainer_status", 0))

    def test_comm(self, words):
        raise Exit(self.settings.value("nccl_test", 0))

    test_nccl_parity = test_nccl_fault = test_comm

    def failing_rank(self, words):
        says, alone = self.settings.nccl_says, "NCCL_MULTI_RANK_GPU_ENABLE" in self.environment
        if (self.ranks > 1 and says and not alone) or self.settings.nccl_never:
            self.say(f"host:1:2 [0] NCCL WARN {says}")
            raise Exit(4)

    # --- Others ------------------------------------------------------------------------------------

    def nvidia_smi(self, words):
        s = self.settings
        if "clocks_event_reasons" in words.text:
            self.say("1980 MHz, 2619 MHz, 400.0 W, 50, 0x0000000000000024")
        elif "--list-gpus" in words.text:
            self.say("\n".join(f"GPU {i}: a card" for i in range(s.value("gpus", 1))))
        else:
            self.say({"compute_cap": "9.0", "name": s.value("device", "a card")}.get(words.all[0].partition("=")[2], "something"))

    def compute_sanitizer(self, words):
        tool = words.after("--tool")
        if tool == self.settings.hangs:
            self.now += 60
        said, status = {"memcheck": ("========= fp8 is not supported\n========= ERROR SUMMARY: 2 errors", 9),
                        "racecheck": ("fp8 is not supported\n========= ERROR SUMMARY: 0 errors", 1),
                        "initcheck": ("========= Error: Device not supported", 1),
                        "synccheck": ("", 0)}[tool] if self.settings.sanitizer else ("========= ERROR SUMMARY: 0 errors", 0)
        self.say(said)
        raise Exit(status)

    def python3(self, words):
        s = self.settings
        if words.all[0] == "-c":
            if "scaled_dot_product" in words.text and not s.no_torch:
                self.say("yes")
            elif "random" in words.text:
                Path(words.all[2]).write_bytes(b"12")
                self.say("done")
        elif words.all[0].endswith("torch_gpt.py"):
            if int(words.after("--batch", 1)) > s.value("theirs_fits", 64):
                raise Exit(3)
            self.say(json.dumps({"tokens_per_second": s.value("theirs", 800), "max_memory_allocated": 2000000}))
        else:
            self.say(json.dumps({"adamw_gb_per_second": 3900}))


# A gather of 10 us, of which a backward pass hides 7, after a step that hides nothing.
TRACE = {"traceEvents": [
    *({"name": "thread_name", "ph": "M", "pid": 0, "tid": tid, "args": {"name": name}}
      for tid, name in ((1, "compute"), (2, "gather"))),
    *({"name": "x", "cat": kind, "ph": "X", "pid": 0, "tid": tid, "ts": begin, "dur": took, "args": {"step": step}}
      for kind, tid, begin, took, step in (("all_gather", 2, 0, 10, 0), ("forward", 1, 10, 10, 1), ("forward", 1, 20, 10, 2),
                                           ("all_gather", 2, 27, 10, 2), ("backward", 1, 33, 9, 2)))]}


def sample(name, shape, value, unit, *limits):
    return {"name": name, "shape": shape, "value": value, "unit": unit,
            "limits": [dict(zip(("name", "value", "ratio"), limit)) for limit in limits]}


def memory_of(name, peak, unattributed):
    return {"name": name, "ranks": [{"count": 1, "planned_peak_bytes": 1000, "peak_bytes": peak}],
            "devices": [{"rows": {"unattributed": unattributed}}]}


def write_json(words, value):
    if words.has("--json"):
        Path(words.after("--json")).write_text(json.dumps(value))


class Check:
    """A folder in which the script is called, on a made-up machine."""

    def __init__(self, folder):
        self.folder, self.page, self.output, self.machine = Path(folder), "", "", None
        for program in PROGRAMS:
            file = self.folder / "build" / program
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
            file.chmod(0o755)

    def call(self, *words, part_seconds=None, **settings):
        """Calls the script; returns its status."""
        self.machine, said = Machine(**settings), io.StringIO()
        os.environ["PART_SECONDS"] = str(part_seconds or "")
        options = ["--build", self.folder / "build", "--work", self.folder / "work", "--out", self.folder, "--commit",
                   "some commit"]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = main.main([str(word) for word in (*options, *words)], lambda: self.machine)
            except SystemExit as ended:
                status = ended.code
        page = self.folder / "gpu.md"
        self.output, self.page = said.getvalue(), page.read_text() if page.exists() else ""
        return status

    def document(self):
        return json.loads((self.folder / "gpu.json").read_text())

    def figures(self):
        """The figures, one per line."""
        return [" | ".join(map(str, (part["name"], *(figure[key] for key in ("name", "shape", "value", "unit", "bar",
                                                                             "verdict")))))
                for part in self.document()["parts"] for figure in part["figures"]]
