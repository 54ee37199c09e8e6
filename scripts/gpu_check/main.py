"""Checks and measures this machine's GPU: builds for it, runs every CUDA test on it, compares kernels and training
with their limits and with PyTorch, judges them by bars, and writes one page of Markdown and its figures as JSON.

  scripts/gpu_check.sh [options] [PART...]        default: all parts, in this order

  part         s   what
PARTS
  --part PART       the same as PART
  --seconds N       at most N seconds for all parts of this call
  --resume          skips the parts, and the commands of a part, that are done for this build; so repeating the same
                    call finishes all parts
  --compare FILE    an older gpu.json: reports what got faster or slower since; the status stays the same
  --noise PERCENT   difference up to which speeds and times count as the same (default 3)
  --out FOLDER      for the page, gpu.md, and its figures, gpu.json (default: that of --work)
  --work FOLDER     for the build, logs and results of each part (default build/gpu_check)
  --build FOLDER    a finished build, so that part `build` compiles nothing; the CUDA trainer must be
                    FOLDER/cuda_trainer, built as docs/cuda-trainer.md says, or is not measured
  --bundle FOLDER   the folder that scripts/bundle_deps.sh filled (default third_party/bundle, if it exists)
  --commit TEXT     the commit that the page names, if git does not know it
  --emulated        runs against the emulated module of --build, at tiny sizes, to test this script

The seconds are estimates for 16 cores and a large card, and add up to more than half an hour. docs/gpu-check.md has
the calls for a machine that you have for half an hour. PART_SECONDS (580) limits each part. Several calls may run
different parts: each replaces its own section of the page, even one that another machine wrote. PYTHON names a Python
with PyTorch.

Needs CUDA 12.4 or newer, CMake, a C++ compiler, NCCL (Python's wheel will do), Python 3.9 or newer, and PyTorch to
compare with it. It needs no network, installs nothing, and reads the card's clocks but changes no setting.

Every bar is printed as "met", "NOT met", "not measured" (and why), or "refused" by NCCL; a figure without a bar is
"measured". Status 0: all is well; 1: a command or a test failed; 2: wrong usage; 3: nothing failed, but a bar was not
met; 4: nothing failed or missed its bar, but time ran out. The speeds of an emulated device are printed and do not
affect the status.
"""

import argparse
import hashlib
import os
import re
import shutil
import sys
import textwrap
import traceback
from pathlib import Path

import builds
import checkpoints
import compare
import decoder
import document
import jobs
import kernels
import machine
import memory
import page
import planned
import run
import sanitizers
import train
from parts import PARTS

RUNS = {"build": builds.build, "test": builds.test, "kernels": kernels.run, "train": train.run, "decoder": decoder.run,
        "memory": memory.run, "checkpoint": checkpoints.run, "nccl": jobs.nccl, "multi": jobs.multi, "predictions": planned.predictions,
        "plans": planned.plans, "sanitize": sanitizers.run}
# What the programs are built from.
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "bench", "cmake", "examples", "include", "kernels", "src", "tests",
           "tools")
# The parts whose figures part plans reads.
PLANNED_FROM = ("kernels", *planned.STEPS_OF)


def sources():
    found = [path for name in SOURCES for path in (Path(name), *Path(name).rglob("*"))]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


class Options(argparse.ArgumentParser):
    def error(self, message):
        print(f"error: {message}; see scripts/gpu_check.sh --help", file=sys.stderr)
        sys.exit(2)


def help_text():
    parts = "\n".join(textwrap.fill(f"  {name:11s} {about.seconds:3d}  {about.what}", 118, subsequent_indent=" " * 19)
                      for name, about in PARTS.items())
    return __doc__.replace("PARTS\n", f"{parts}\n\n")


def options_of(words):
    parser = Options(add_help=False, allow_abbrev=False)
    for name in ("--seconds", "--compare", "--noise", "--out", "--build", "--bundle", "--commit"):
        parser.add_argument(name)
    parser.add_argument("--work", default="build/gpu_check")
    parser.add_argument("--part", action="append", default=[])
    for name in ("--resume", "--emulated"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_intermixed_args(words)
    options.parts = [*options.part, *options.parts] or list(PARTS)
    check_options(options, parser.error)
    return options


def check_options(options, refuse):
    for part in options.parts:
        if part not in PARTS:
            refuse(f"'{part}' is not a part")
    if options.seconds and not options.seconds.isdigit():
        refuse(f"--seconds: '{options.seconds}' is not a whole number")
    if options.emulated and not options.build:
        refuse("--emulated needs --build, a build with the emulated module")
    if options.emulated and not options.out:
        refuse("--emulated needs --out, so that its page replaces no page of a GPU")
    if options.compare == "":
        refuse("--compare needs a file")
    if options.noise and not options.compare:
        refuse("--noise is for --compare")
    if not re.fullmatch(r"\d{1,2}(\.\d+)?", options.noise or "3"):
        refuse(f"--noise: '{options.noise}' is no percentage below 100")
    options.out = options.out or options.work
    old = Path(options.out) / "gpu.json"
    readable(options.compare, refuse, "--compare needs the gpu.json of an earlier run")
    readable(old if os.path.lexists(old) else None, refuse,
             f"{old} would be replaced: move it away, or name another folder with --out")


def readable(path, refuse, otherwise):
    if path:
        try:
            document.read(path)
        except document.Wrong as wrong:
            print(f"error: {path}: {wrong}", file=sys.stderr)
            refuse(otherwise)


class Call:
    """One call of the script: its options, and the sums of its parts."""

    def __init__(self, options, programs):
        self.options, self.programs = options, programs
        self.emulated, self.given_build = options.emulated, bool(options.build)
        self.out, self.work = (Path(path).resolve() for path in (options.out, options.work))
        for folder in (self.out, *(self.work / name for name in ("parts", "logs", "done"))):
            folder.mkdir(parents=True, exist_ok=True)
        self.build = Path(options.build or self.work / "build").resolve()
        bundle = options.bundle or "third_party/bundle"
        self.bundle = Path(bundle).resolve() if options.bundle or os.path.isdir(bundle) else None
        self.python = os.environ.get("PYTHON") or "python3"
        self.tessera, self.bench = self.build / "tools/tessera", self.build / "bench/cuda/tessera_cuda_bench"
        self.part_seconds = float(os.environ.get("PART_SECONDS") or 580)
        self.ends = programs.clock() + float(options.seconds or 1e6)
        self.failed = self.missed = self.unfinished = 0
        self.machine = machine.Machine(programs, self.emulated, self.python)
        self.page = page.Page(self.work / "parts", self.out)
        self.module = self.build / f"lib/libtessera_cuda{'_emulated' if self.emulated else ''}.so"
        # A named module must be usable: tests then do not skip, and tests that look for a module use CUDA.
        os.environ["TESSERA_CUDA_MODULE"] = str(self.module)
        self._has_torch = None

    def has_torch(self):
        """Whether Python has a PyTorch with the attention to compare with."""
        if self._has_torch is None:
            test = "from torch.nn.functional import scaled_dot_product_attention; print('yes')"
            self._has_torch = self.programs.ask(self.python, "-c", test) == "yes"
        return self._has_torch

    def plain(self, text):
        """Replaces paths by names that are the same in any checkout."""
        here, home = os.getcwd(), os.environ.get("HOME", "/")
        names = [(str(self.work), "WORK"), (str(self.build), "BUILD"), (f"{here}/", ""), (here, ".")]
        for path, name in [*names, *([(f"{home}/", "~/")] if len(home) > 1 else [])]:
            text = text.replace(path, name)
        return text

    def commit(self):
        return self.options.commit or self.programs.ask(
            "git", "describe", "--always", "--dirty", "--exclude", "*") or "not known"

    def not_built(self, what):
        if self.given_build:
            return f"{what} is not in the build that --build names: build it there, or leave --build out"
        return f"{what} is not in the build: run part build first"

    def fingerprint(self, part):
        """A checksum of what a part's results depend on."""
        files = [self.tessera, self.module]
        if not self.given_build:
            files += sources()
        if part == "train":
            files.append(self.work / "products.json")
        if part == "plans":
            files += [self.work / "parts" / f"{name}.json" for name in PLANNED_FROM]
        told = hashlib.sha1()
        for file in files:
            if file.exists():
                told.update(f"{file} {hashlib.sha1(file.read_bytes()).hexdigest()}\n".encode())
        return told.hexdigest()

    def run_part(self, name):
        print(f"\n== {name} (about {PARTS[name].seconds} s)")
        done = self.work / "done" / name
        of, whole = done / "of", done / "all"
        if not (self.options.resume and of.exists() and of.read_text() == self.fingerprint(name)):
            shutil.rmtree(done, ignore_errors=True)
            done.mkdir()
            of.write_text(self.fingerprint(name))
        if whole.exists() and self.page.part(name):
            print("done before")
        else:
            part = run.Part(self, name)
            try:
                RUNS[name](part)
            except Exception:  # it may have measured for minutes
                part.fails(f"an error of this script\n\n```\n{traceback.format_exc()}```")
            part.finish()
            of.write_text(self.fingerprint(name))  # of a build that this part has just made
            if part.failed + part.cut == 0:
                whole.touch()
            self.failed, self.unfinished = self.failed + part.failed, self.unfinished + part.cut
            self.page.write(self.machine.told(), self.commit())
        self.missed += sum(bar["verdict"] == "NOT met" for bar in self.page.part(name)["bars"])

    def run(self):
        """Runs the parts, prints the result, and returns the status."""
        if self.options.compare:  # the run may replace it
            old = document.read(self.options.compare)
        self.page.take()
        print("\n".join(page.table_of(self.machine.told(), self.commit())))
        estimates = [PARTS[name].seconds for name in self.options.parts]
        each = "".join(f"{name} {seconds}, " for name, seconds in zip(self.options.parts, estimates))
        print(f"\nestimated s: {each}all of them {sum(estimates)}", flush=True)
        for name in self.options.parts:
            self.run_part(name)
        comparison = ""
        if self.options.compare:
            new, noise = document.read(self.out / "gpu.json"), float(self.options.noise or 3) / 100
            comparison = compare.section(old, new, noise)
            print(f"\n{comparison}")
        self.page.write(self.machine.told(), self.commit(), comparison)
        return self.result()

    def result(self):
        print()
        for verdict in page.ORDER:
            print(f"{len(self.page.bars(verdict)):3d} {verdict}")
        print("\n".join(self.page.bars("NOT met")))
        status = 3 if self.missed else 0
        if self.unfinished:
            print("time ran out before all was done: repeat the call with --resume to continue")
            status = status or 4
        if self.failed:
            print(f"{self.failed} commands or tests failed")
            status = 1
        print(f"the page: {self.out}/gpu.md\nits figures: {self.out}/gpu.json", flush=True)
        return status


def main(words, programs=run.Programs):
    if {"-h", "--help"} & set(words):
        print(help_text(), end="")
        return 0
    call = Call(options_of(words), programs())
    return call.run()


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[2])
    sys.stdout.reconfigure(errors="replace")
    os.environ["PATH"] += f":{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    os.environ["LC_ALL"] = "C"
    sys.exit(main(sys.argv[1:]))
