#!/usr/bin/env python3
"""Runs the command in awkward places: it must train as elsewhere, or end with one plain error.

  scripts/trials/environment.py --command build/release/tools/tessera --count 39 --seed 1

Number N tries kind N of a list, over and over: stale variables of launchers, no HOME or TMPDIR,
locales, clocks that jump, limits (files, address space, processes, stacks), a removed working
directory, a full or read-only /tmp and /dev/shm, 64 MiB of /dev/shm, cgroups. What this machine cannot
do counts as "not possible here".
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from common import NOT_POSSIBLE, MPIRUN, Trial, Training

NOBODY = 65534
ELSEWHERE = "/var/tmp"  # not in /tmp, not in /dev/shm
CLOCK = pathlib.Path(__file__).resolve().parent / "jumping_clock.c"
STALE = (
    {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "9"},
    {"PMI_SIZE": "4", "PMI_RANK": "1"},
    {"PMI_SIZE": "1", "PMI_RANK": "0"},
    {"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_STEP_ID": "0"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"},
    {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "x"},
    {"RANK": "-1", "WORLD_SIZE": "two"},
)


class Places(Training):
    """The kinds of places, each a method that returns how its run ended."""

    def train(self, draws, folder, before=(), steps=3, more=(), **process):
        ranks = draws.choice((1, 2, 3))
        end = self.trial.run(self.words(folder, ranks, steps, *more), before, **process)
        return end, lambda: self.require_same(end, folder, ranks, steps)

    def train_or_error(self, draws, folder, before=(), wants=None, **process):
        """Trains alike, or ends with one error that mentions `wants`."""
        end, same = self.train(draws, folder, before, **process)
        if end.status == 0:
            return same()
        end.require_status(1, 2, 3, 4)
        end.require(wants is None or wants(end.err), "the error names another limit, or none")
        return "ended with an error"

    # ---- variables

    def stale_variables(self, draws, folder):
        stale = draws.choice(STALE)
        environment = {**os.environ, **stale}
        end, same = self.train(draws, folder, more=("--comm", "local"), env=environment)
        same()
        (folder / "log").unlink()
        end, same = self.train(draws, folder, env=environment)
        if end.status == 0:
            return same()
        end.require_status(2)
        end.require(any(name in end.err for name in stale) and "unset" in end.err,
                    "no variable and no way out is named")
        return "ended with an error"

    def missing_variables(self, draws, folder):
        keep = {"PATH": os.environ["PATH"]} if draws.random() < 0.5 else {}
        for name in ("HOME", "TMPDIR"):
            value = draws.choice((None, "", "/nonexistent", "/proc"))
            if value is not None:
                keep[name] = value
        end, same = self.train(draws, folder, more=("--checkpoint", folder / "c"), env=keep)
        return same()

    def odd_locales(self, draws, folder):
        locale = draws.choice(("C", "POSIX", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8", "", "x/../y",
                               "%s%n", "A" * 5000))
        names = draws.sample(("LC_ALL", "LC_NUMERIC", "LANG", "LC_CTYPE", "LANGUAGE"), 3)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="\u00e4 \xff'", dir=folder))
        end, same = self.train(draws, folder, env={**os.environ, **dict.fromkeys(names, locale)})
        return same()

    def jumping_clock(self, draws, folder):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return NOT_POSSIBLE
        built = subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "clock.so", CLOCK, "-ldl"],
                               check=False)
        if built.returncode != 0:
            return NOT_POSSIBLE
        end, same = self.train(draws, folder, steps=20,
                               more=("--checkpoint", folder / "c", "--checkpoint-every", 3),
                               env={**os.environ, "LD_PRELOAD": str(folder / "clock.so")})
        return same()

    # ---- limits

    def few_files(self, draws, folder):
        return self.train_or_error(draws, folder, ["prlimit", f"--nofile={draws.randint(4, 40)}"])

    def little_address_space(self, draws, folder):
        mib = draws.choice((60, 100, 200, 300, 500, 1000))
        return self.train_or_error(draws, folder, ["prlimit", f"--as={mib << 20}"],
                                   lambda error: "ulimit -u" not in error)

    def few_processes(self, draws, folder):
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            return NOT_POSSIBLE
        self.words(folder, 1, 1)  # writes the text
        folder.chmod(0o777)
        before = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", "prlimit",
                  f"--nproc={draws.randint(1, 8)}"]
        if subprocess.run([*before[:3], "test", "-x", self.trial.command], check=False).returncode:
            return NOT_POSSIBLE
        return self.train_or_error(draws, folder, before, lambda error: "ulimit -u" in error)

    def odd_stacks(self, draws, folder):
        bytes_ = draws.choice((256 << 10, 1 << 20, 64 << 20, "unlimited"))
        return self.train_or_error(draws, folder, ["prlimit", f"--stack={bytes_}"])

    # ---- folders

    def removed_folder(self, draws, folder):
        place = folder / "place"
        place.mkdir()
        self.words(folder, 1, 1)
        script = 'cd "$0" && rmdir "$0" && exec "$@"'
        end, same = self.train(draws, folder, ["sh", "-c", script, place],
                               more=("--checkpoint", folder / "c"))
        return same()

    def behind(self, mounts, run):
        """Calls `run(folder, words)` with words before which a command sees other mounts."""
        words = ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]
        if subprocess.run([*words, "true"], check=False, capture_output=True).returncode != 0:
            return NOT_POSSIBLE
        with tempfile.TemporaryDirectory(prefix="tessera-trial-", dir=ELSEWHERE) as folder:
            return run(pathlib.Path(folder), words)

    def saved_behind(self, mounts, draws):
        def run(folder, words):
            _, same = self.train(draws, folder, words, more=("--checkpoint", folder / "c"))
            return same()
        return self.behind(mounts, run)

    def full_tmp(self, draws, _):
        folders = ["/dev/shm"]
        if not self.trial.command.startswith("/tmp/"):
            folders.append("/tmp")
        return self.saved_behind([f"mount -t tmpfs -o size=4k tmpfs {folder} && "
                                  f"head -c 4096 /dev/zero > {folder}/full" for folder in folders],
                                 draws)

    def read_only_tmp(self, draws, _):
        return self.saved_behind([f"mount --bind {folder} {folder} && "
                                  f"mount -o remount,bind,ro {folder}"
                                  for folder in ("/tmp", "/dev/shm")], draws)

    def little_shared_memory(self, _, __):
        def run(folder, words):
            if shutil.which("mpirun") is None:
                return NOT_POSSIBLE
            end = self.trial.run(self.words(folder, 4, 3, "--comm", "mpi"), [*words, MPIRUN, "-n", 4])
            if end.status == 2 and "no MPI" in end.err:
                return NOT_POSSIBLE
            return self.require_same(end, folder, 4, 3)
        return self.behind(["mount -t tmpfs -o size=64m tmpfs /dev/shm"], run)

    # ---- cgroups

    def limited_group(self, draws, folder):
        """A limit of an ancestor's memory refuses a run before it is killed."""
        for root, limit in ((pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
                            (pathlib.Path("/sys/fs/cgroup"), "memory.max")):
            if (root / "cgroup.procs").exists() and os.access(root, os.W_OK):
                return self.run_in_group(root, limit, draws, folder)
        return NOT_POSSIBLE

    def run_in_group(self, root, limit, draws, folder):
        groups = [root / f"tessera-trial-{os.getpid()}"]
        for _ in range(draws.randint(0, 2)):
            groups.append(groups[-1] / "inner")
        self.words(folder, 1, 1)  # writes the text
        try:
            for group in groups:
                group.mkdir()
            (groups[0] / limit).write_text(str(300 << 20))
            before = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', groups[-1]]
            end = self.trial.run(["train", "--model", "gpt2", "--batch", 1, "--steps", 1, "--data",
                                  folder / "text"], before)
            end.require_status(3)
            return "refused within its group"
        except PermissionError:
            return NOT_POSSIBLE
        finally:
            for group in reversed(groups):
                if group.exists():
                    group.rmdir()


def main():
    trial = Trial(__doc__, 39)
    kinds = Places(trial)
    return trial.run_all_of(
        kinds.stale_variables, kinds.missing_variables, kinds.odd_locales, kinds.jumping_clock,
        kinds.few_files, kinds.little_address_space, kinds.few_processes, kinds.odd_stacks,
        kinds.removed_folder, kinds.full_tmp, kinds.read_only_tmp, kinds.little_shared_memory,
        kinds.limited_group)


if __name__ == "__main__":
    sys.exit(main())
