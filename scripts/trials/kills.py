#!/usr/bin/env python3
"""Kills runs at random moments: saved files must be whole, and resumed runs equal uninterrupted ones.

  scripts/trials/kills.py --command build/release/tools/tessera --count 40 --seed 1

Sends a signal at a random moment to a run that saves often, verifies the files it left, resumes it on
a random number of ranks, sometimes kills it again, and compares the result with an uninterrupted run:
steps, losses, and on the same number of ranks every byte of the last checkpoint.
"""
import json
import signal
import sys
import time

from common import Failed, Trial, whole_weights, write_text

# A checkpoint of three megabytes: saving takes a while.
SIZES = ["--layers", 1, "--hidden", 32, "--heads", 2, "--seq", 8, "--vocab", 8000]
STEPS = 12
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CLOSE = 1e-5  # tolerance of losses on other numbers of ranks


def lines_of(path, torn_end=False):
    """The lines of a log, by step; Failed unless they are whole and each step is there once."""
    lines = path.read_text().split("\n") if path.exists() else [""]
    if lines.pop() and not torn_end:
        raise Failed("the log ends in the middle of a line")
    objects = [json.loads(line) for line in lines]
    for number, line in enumerate(objects):
        if line["step"] != number + 1:
            raise Failed(f"line {number + 1} of the log has step {line['step']}")
    return objects


def steps_in(folder):
    """The checkpoints in the folder, the newest last."""
    return sorted(path for path in folder.glob("step-*") if path.name[5:].isdigit())


def same_bytes(one, other):
    names = sorted(path.name for path in one.iterdir())
    return names == sorted(path.name for path in other.iterdir()) and all(
        name == "provenance.json" or (one / name).read_bytes() == (other / name).read_bytes()
        for name in names)


def main():
    trial = Trial(__doc__, 40)

    def arguments(folder, name, ranks, *more):
        return ["train", *SIZES, "--data", folder / "text", "--steps", STEPS, "--ranks", ranks,
                "--batch", 6 // ranks, "--strategy", "zero3", "--log", folder / f"{name}.log",
                "--checkpoint", folder / name, *more]

    def killed(draws, words, seconds):
        """Sends the command a signal within `seconds`. Returns whether that killed it at once."""
        process = trial.start(words)
        time.sleep(draws.uniform(0, seconds))
        sent = draws.choice(SIGNALS)
        process.send_signal(sent)
        end = trial.end_of(process)
        caught = sent != signal.SIGKILL
        end.require(end.status in (0, -sent) or (caught and end.status == 128 + sent),
                    f"the run did not end as signal {sent} should end it")
        return end.status < 0

    def check(folder):
        """Checks that the files of a killed run are whole. Returns whether it left a checkpoint."""
        steps = steps_in(folder / "c") if (folder / "c").exists() else []
        for step in steps[-2:]:
            whole_weights(step / "model.safetensors")
        if steps:
            trial.run(["checkpoint", "verify", steps[-1]]).require_status(0)
        return bool(steps)

    def one(draws, folder):
        write_text(folder / "text", 4000, draws)
        began = time.monotonic()
        trial.run(arguments(folder, "whole", 2)).require_status(0)
        seconds = 1.5 * (time.monotonic() - began)
        often = ["--checkpoint-every", draws.randint(1, 3)]
        ranks, any_step, same, kills = 2, False, True, 0
        for _ in range(draws.randint(1, 3)):
            more = [*often, "--resume"] if any_step else often
            kills += killed(draws, arguments(folder, "c", ranks, *more), seconds)
            any_step = check(folder)
            lines_of(folder / "c.log", torn_end=True)
            ranks = draws.choice((2, 2, 1, 3))
            same = same and ranks == 2
        # A save removes what the killed run was removing. If that run had saved its last step, the
        # resumed run saves nothing, so the remains stay.
        ended = any_step and steps_in(folder / "c")[-1].name.endswith(f"{STEPS:08}")
        last = trial.run(arguments(folder, "c", ranks, *often, *(["--resume"] if any_step else [])))
        last.require_status(0)
        left = {path.name for path in (folder / "c").iterdir()
                if not (ended and path.name.startswith("."))} - {"model.safetensors"}
        last.require(left == {path.name for path in steps_in(folder / "c")},
                     f"the folder holds more than the checkpoints: {sorted(left)}")
        whole, resumed = lines_of(folder / "whole.log"), lines_of(folder / "c.log")
        apart = [abs(a["loss"] - b["loss"]) for a, b in zip(whole, resumed)]
        last.require(len(whole) == len(resumed) == STEPS and max(apart) <= CLOSE,
                     f"losses differ by {max(apart)}")
        ends = [steps_in(folder / name)[-1] for name in ("whole", "c")]
        last.require(not same or (max(apart) == 0 and same_bytes(*ends)),
                     "the final state differs on the same number of ranks")
        return "killed and resumed" if kills else "saved at a signal and resumed"

    return trial.run_all(one)


if __name__ == "__main__":
    sys.exit(main())
