#!/usr/bin/env python3
"""Saves random models and damages their checkpoints: a checkpoint must be what it says.

  scripts/trials/checkpoints.py --command build/release/tests/checkpoint_whole --count 2000 --seed 1

For each number, one process draws a model, a mesh, a precision and an optimizer, saves, loads on
other ranks and compares all bits; then it damages copies of the checkpoint, and compares what is said
of weights, optimizer state and the whole with what loading says.
"""
import sys

from common import Trial

DAMAGES = 5  # of each model


def main():
    trial = Trial(__doc__, 2000)
    damaged = []

    def one(draws, folder):
        end = trial.run([draws.getrandbits(63), DAMAGES, folder])
        end.require(end.status == 0, "a checkpoint is not what it says")
        damaged.append(int(end.out.split()[0]))
        return "also saved in parts" if "in parts" in end.out else "saved"

    status = trial.run_all(one)
    print(f"{len(damaged) * DAMAGES} damages, {sum(damaged)} found, the others change nothing")
    return status


if __name__ == "__main__":
    sys.exit(main())
