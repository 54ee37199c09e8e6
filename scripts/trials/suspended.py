#!/usr/bin/env python3
"""Stops processes of a run for longer than its deadline: a job that is stopped as a whole must go on.

  scripts/trials/suspended.py --command build/release/tools/tessera --count 12 --seed 1

Number N tries kind N of three, over and over: a job of threads, a job of processes (MPI), and one
process of several, which the others must name. Without MPI the last two count as "not possible here".
"""
import os
import pathlib
import shutil
import signal
import sys
import time

from common import NOT_POSSIBLE, MPIRUN, Failed, Trial, Training

STEPS = 3000


def stop(processes, seconds):
    """Stops processes for a while."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(seconds)
    for process in processes:
        os.kill(process, signal.SIGCONT)


def processes_below(parent, name):
    """The descendants of `parent` with that name, in ascending order."""
    found, parents = [], {parent}
    for path in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            stat = (path / "stat").read_text()
        except OSError:  # it has ended
            continue
        if int(stat[stat.rindex(")") + 2:].split()[1]) in parents:
            parents.add(int(path.name))
            if stat[stat.index("(") + 1:stat.rindex(")")] == name[:15]:
                found.append(int(path.name))
    return found


class Suspended(Training):
    """The kinds of jobs, each a method that returns how its run ended."""

    def threads(self, draws, folder):
        process = self.trial.start(self.words(folder, 2, STEPS, "--deadline", 1))
        for _ in range(3):
            time.sleep(draws.uniform(0.05, 0.2))
            if process.poll() is not None:
                raise Failed("the run ended before it was stopped")
            stop([process.pid], 1.3)
        return self.require_same(self.trial.end_of(process), folder, 2, STEPS)

    def processes(self, draws, folder):
        process, ranks = self.begin_job(folder, STEPS)
        if not ranks:
            return self.without_job(process)
        time.sleep(draws.uniform(0, 0.1))
        stop(ranks, 1.5)
        return self.require_same(self.trial.end_of(process), folder, 2, STEPS)

    def one_process(self, _, folder):
        process, ranks = self.begin_job(folder, 10**9)
        if not ranks:
            return self.without_job(process)
        os.kill(ranks[-1], signal.SIGSTOP)
        end = self.trial.end_of(process)
        end.require(end.status != 0 and "rank 1" in end.err and "waited" in end.err,
                    "the rank that was stopped is not named")
        return "named the stopped rank"

    def begin_job(self, folder, steps):
        """A job of two processes that trains, and the numbers of its ranks' processes."""
        if shutil.which("mpirun") is None:
            return None, []
        words = self.words(folder, 2, steps, "--comm", "mpi", "--deadline", 1)
        process = self.trial.start(words, [MPIRUN, "-n", 2])
        end = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < end:
            ranks = processes_below(process.pid, pathlib.Path(self.trial.command).name)
            if len(ranks) == 2 and (folder / "log").exists() and (folder / "log").stat().st_size:
                return process, ranks
            time.sleep(0.01)
        return process, []

    def without_job(self, process):
        if process is not None:
            end = self.trial.end_of(process)
            end.require("no MPI" in end.err, "the job did not begin")
        return NOT_POSSIBLE


def main():
    trial = Trial(__doc__, 12)
    kinds = Suspended(trial)
    return trial.run_all_of(kinds.threads, kinds.processes, kinds.one_process)


if __name__ == "__main__":
    sys.exit(main())
