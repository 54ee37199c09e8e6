#!/usr/bin/env python3
"""Kills at random moments: weights are the old or the new ones, never torn, and nothing is left.

  scripts/trials/kills.py --command build/release/tools/tessera --count 40 --seed 1

Trains into a folder that has weights already, and ends the run by a signal at a random moment, often
as it saves. Then one more run ends well: its folder holds the weights alone.
"""
import json
import signal
import subprocess
import sys
import time

from common import Failed, Trial, whole_weights, write_text

# A file of a megabyte: saving takes a while.
SIZES = ["--layers", 1, "--hidden", 32, "--heads", 2, "--seq", 8, "--vocab", 8000]
STEPS = 6
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def check_log(path, torn_end):
    lines = path.read_text().split("\n") if path.exists() else [""]
    if lines.pop() and not torn_end:
        raise Failed("the log ends in the middle of a line")
    for number, line in enumerate(lines):
        if json.loads(line)["step"] != number + 1:
            raise Failed(f"line {number + 1} of the log is another step's")


def main():
    trial = Trial(__doc__, 40)
    known = {}

    def arguments(folder, seed):
        return ["train", *SIZES, "--data", folder / "text", "--steps", STEPS, "--ranks", 2,
                "--strategy", "zero3", "--seed", seed, "--log", folder / "log",
                "--checkpoint", folder / "c"]

    def one(draws, folder):
        write_text(folder / "text", 4000, draws)
        weights = folder / "c" / "model.safetensors"
        began = time.monotonic()
        trial.run(arguments(folder, 1)).require_status(0)
        known["seconds"] = min(time.monotonic() - began, known.get("seconds", 60.0))
        old = whole_weights(weights)
        process = subprocess.Popen(trial.words(arguments(folder, 2)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end_of_run = known["seconds"]
        time.sleep(draws.choice((draws.uniform(0, end_of_run),
                                 draws.uniform(0.5 * end_of_run, end_of_run))))
        sent = draws.choice(SIGNALS)
        process.send_signal(sent)
        end = trial.end_of(process)
        caught = sent != signal.SIGKILL
        end.require(end.status in (0, -sent) or (caught and end.status == 128 + sent),
                    f"another end than signal {sent} has")
        after = whole_weights(weights)
        if end.status > 0:
            end.require(after != old and "its weights are in" in end.err, "weights were not written")
        check_log(folder / "log", torn_end=end.status == -sent)
        last = trial.run(arguments(folder, 2))
        last.require_status(0)
        left = sorted(entry.name for entry in weights.parent.iterdir())
        last.require(left == ["model.safetensors"], f"left in the folder: {left}")
        # Before it trains and after it has saved a signal kills a run as it kills others.
        if end.status == -sent:
            end.require(after in (old, whole_weights(weights)), "neither the old nor the new weights")
        ends = {0: "ended before the signal", 128 + sent: "saved and ended"}
        return ends.get(end.status, "killed")

    return trial.run_all(one)


if __name__ == "__main__":
    sys.exit(main())
