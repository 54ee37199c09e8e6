#!/usr/bin/env python3
"""Kills a process that saves checkpoints: no committed one may be lost, and the next save must work.

  scripts/trials/saves.py --command build/release/tests/checkpoint_saver --count 100 --seed 1

For each number, kills the process several times in one folder, at random moments, and checks the
folder after each. The process prints the steps that it has committed.
"""
import signal
import sys
import time

from common import Trial

KILLS = 4  # in one folder
LONGEST_S = 0.15  # until a process is killed


def main():
    trial = Trial(__doc__, 100)

    def killed_save(draws, folder):
        """The newest step that the process reported as committed; 0 for none."""
        process = trial.start(["save", folder])
        time.sleep(draws.uniform(0, LONGEST_S))
        process.send_signal(signal.SIGKILL)
        end = trial.end_of(process)
        end.require(end.status == -signal.SIGKILL, "the process ended before it was killed")
        whole_lines = end.out.split("\n")[:-1]
        return int(whole_lines[-1]) if whole_lines else 0

    def one(draws, folder):
        run = folder / "run"
        committed = 0
        for _ in range(KILLS):
            committed = max(committed, killed_save(draws, run))
            check = trial.run(["check", run])
            check.require(check.status == 0, "a remaining checkpoint is damaged")
            newest = int(check.out)
            check.require(newest in (committed, committed + 1),
                          f"the newest checkpoint is {newest}, but {committed} was committed")
            committed = newest
        return "with checkpoints" if committed else "killed before the first"

    return trial.run_all(one)


if __name__ == "__main__":
    sys.exit(main())
