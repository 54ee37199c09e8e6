#!/usr/bin/env python3
"""Compares the losses of examples/c_trainer with those of examples/c_plain_trainer: the same text on one rank,
within rounding on several.

    compare_trainers.py PLAIN TRAINER [MPIRUN]
"""
import math
import subprocess
import sys

STEPS = 50
# Roundings in sequence, forward and backward: three sums of products and one of exponentials, of these numbers of
# terms; a sum over 16 samples. tests/support/rounding.hpp derives the bound.
TERMS = (96, 61, 61, 128)
ROUNDINGS = 2 * sum(n / 2 + 9 for n in TERMS) + 16 / 2
WITHIN = 5 * 2**-24 * math.sqrt(2 * ROUNDINGS / 3)  # of the first loss


def printed(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        sys.exit(f"error: status {done.returncode} from {command}: {done.stderr}")
    return done.stdout


def losses(text):
    lines = [line.split() for line in text.splitlines() if line.startswith("step ")]
    if [line[1] for line in lines] != [str(step) for step in range(1, STEPS + 1)]:
        sys.exit(f"error: not every step has printed its loss:\n{text}")
    return [float(line[3]) for line in lines]


plain, trainer, *mpirun = sys.argv[1:]
expected = printed(plain, STEPS)
if not losses(expected)[-1] < 0.6 * losses(expected)[0]:
    sys.exit(f"error: the plain trainer does not learn:\n{expected}")
runs = [(strategy, ranks, [trainer, STEPS, strategy, ranks])
        for strategy, counts in (("ddp", (1, 2)), ("zero3", (1, 2, 4))) for ranks in counts]
if mpirun:
    runs.append(("zero3", 2, [*mpirun, "-n", 2, trainer, STEPS, "zero3", 0]))
for strategy, ranks, command in runs:
    text = printed(*command)
    far = max(abs(a - b) for a, b in zip(losses(text), losses(expected)))
    print(f"{strategy}, {ranks} ranks: losses differ by {far:.1e} at most over {STEPS} steps")
    if ranks == 1 and text != expected:
        sys.exit("error: one rank does not have the bits of the plain trainer")
    most = WITHIN * losses(expected)[0]
    if not far <= most:
        sys.exit(f"error: that is above {most:.1e}")
