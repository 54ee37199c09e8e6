"""What the trials share: running the command, checking how it ends, and the report."""
import argparse
import json
import pathlib
import random
import shlex
import struct
import subprocess
import sys
import tempfile
import time

MPIRUN = pathlib.Path(__file__).resolve().parent.parent / "mpirun.sh"
NOT_POSSIBLE = "not possible here"
LIMIT_S = 120.0  # a longer run counts as hanging
WORDS = ["the ", "tile ", "of ", "a ", "mosaic ", "is ", "set\n"]


class Failed(Exception):
    """A run misbehaved."""


class Trial:
    """Runs the command, each time in a new folder, counts how the runs ended and records failures."""

    def __init__(self, page, count):
        parser = argparse.ArgumentParser(description=page.splitlines()[0], epilog=page,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--command", default="build/release/tools/tessera",
                            help="the tessera command (default %(default)s)")
        parser.add_argument("--count", type=int, default=count, help="default %(default)s")
        parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
        parser.add_argument("--only", type=int, help="run this number only, and show its output")
        self.options = parser.parse_args()
        self.command = str(pathlib.Path(self.options.command).resolve())
        self.ends = {}
        self.failures = []
        self.number = 0  # of the current run

    def run_all(self, one):
        """Calls `one(random, folder)` for each number; what it draws depends on seed and number."""
        began = time.monotonic()
        only = self.options.only
        for number in range(self.options.count) if only is None else [only]:
            self.number = number
            draws = random.Random(f"{self.options.seed} {number}")
            with tempfile.TemporaryDirectory(prefix="tessera-trial-") as folder:
                try:
                    end = one(draws, pathlib.Path(folder))
                    self.ends[end] = self.ends.get(end, 0) + 1
                except Failed as failed:
                    self.failures.append(number)
                    print(f"FAILED: number {number} of seed {self.options.seed}: {failed}", flush=True)
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        print(f"{ends or 'none passed'}; {len(self.failures)} failed; "
              f"{time.monotonic() - began:.0f} s")
        return 1 if self.failures else 0

    def run_all_of(self, *kinds):
        """Calls the kinds in turn: number N is of kind N."""
        def one(draws, folder):
            kind = kinds[self.number % len(kinds)]
            try:
                return f"{kind.__name__}: {kind(draws, folder)}"
            except (Failed, OSError) as failed:  # a log, or a process, may not be there
                raise Failed(f"{kind.__name__}: {failed}") from failed
        return self.run_all(one)

    def words(self, arguments):
        return [self.command, *map(str, arguments)]

    def start(self, arguments, before=(), **process):
        """Starts the command behind the words `before`; `process` is for Popen."""
        return subprocess.Popen([*map(str, before), *self.words(arguments)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **process)

    def run(self, arguments, before=(), **process):
        """Runs the command to its end."""
        return self.end_of(self.start(arguments, before, **process))

    def end_of(self, process):
        """How `process` ended; Failed if it hangs."""
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired as late:
            process.kill()
            process.communicate()
            raise Failed(f"no end within {LIMIT_S:.0f} s: {shlex.join(process.args)}") from late
        end = End(process.args, process.returncode, out.decode("utf-8", "replace"),
                  err.decode("utf-8", "replace"))
        if self.options.only is not None:
            print(end)
        return end


class End:
    """A run that has ended."""

    def __init__(self, words, status, out, err):
        self.words, self.status, self.out, self.err = words, status, out, err

    def __str__(self):
        return f"status {self.status}: {shlex.join(self.words)}\n{self.err}"

    def require(self, holds, what):
        if not holds:
            raise Failed(f"{what}\n{self}")

    def require_status(self, *allowed):
        """Requires one of these statuses, and a plain error message unless it is 0."""
        self.require(self.status in allowed, f"the status is none of {allowed}")
        if self.status in (0, 1, 2, 3, 4):
            told = [line for line in self.err.splitlines() if line.startswith("error: ")]
            self.require(len(told) == (self.status != 0),
                         f"{len(told)} lines begin with 'error: ' instead of {int(self.status != 0)}")


class Training:
    """Short runs, and what they give elsewhere."""

    SIZES = ("--layers", 1, "--hidden", 16, "--heads", 2, "--seq", 8, "--batch", 2)

    def __init__(self, trial):
        self.trial = trial
        self.elsewhere = {}  # losses, by ranks and steps

    def words(self, folder, ranks, steps, *more):
        """The arguments of a run in `folder`, which logs there."""
        text = folder / "text"
        if not text.exists():
            text.write_bytes(b"the tile of a mosaic is set\n" * 100)
        return ["train", *self.SIZES, "--data", text, "--ranks", ranks, "--steps", steps,
                "--strategy", "zero3", "--log", folder / "log", *more]

    def require_same(self, end, folder, ranks, steps):
        """Requires success, and the losses that the same run has elsewhere."""
        end.require_status(0)
        key = (ranks, steps)
        if key not in self.elsewhere:
            with tempfile.TemporaryDirectory(prefix="tessera-trial-") as other:
                other = pathlib.Path(other)
                self.trial.run(self.words(other, ranks, steps)).require_status(0)
                self.elsewhere[key] = losses_in(other / "log")
        end.require(losses_in(folder / "log") == self.elsewhere[key], "the losses differ")
        return "trained alike"


def losses_in(log):
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def write_text(path, size, draws):
    """Writes a text of `size` bytes to train on."""
    text = "".join(draws.choice(WORDS) for _ in range(size // 2))
    path.write_bytes(text.encode()[:size])
    return path


def whole_weights(path):
    """The bytes of a safetensors file; Failed if it is incomplete."""
    data = path.read_bytes()
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        end = max(entry["data_offsets"][1] for name, entry in header.items()
                  if name != "__metadata__")
    except (struct.error, ValueError, KeyError) as wrong:
        raise Failed(f"{path.name} is not a weight file: {wrong}") from wrong
    if len(data) != 8 + length + end:
        raise Failed(f"{path.name} is incomplete: {len(data)} bytes, its header says {8 + length + end}")
    return data


if __name__ == "__main__":
    sys.exit("error: common.py is not a trial; run another script of its folder")
