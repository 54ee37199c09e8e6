#!/usr/bin/env python3
"""Tests how scripts/gpu_check.sh runs real programs: what they print, how they end, and what ends them."""

import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from made_up import ROOT  # finds the script's modules

import run

# A rank of a job that works until rank 1 is gone.
RANK = """#!/usr/bin/env bash
lost=$(dirname "$0")/rank-1
if [[ $RANK == 1 ]]; then echo $$ >"$lost"; fi
until [[ -s $lost ]]; do sleep 0.05; done
if [[ $RANK == 0 ]]; then echo "step 1/1000000"; fi
while kill -0 "$(cat "$lost")" 2>/dev/null; do sleep 0.05; done
echo "error: $1" >&2
exit 4
"""


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_shell(self, script, seconds=10):
        """The status and the output of a script."""
        log = self.folder / "log"
        status = run.Programs.run(["bash", "-c", script], seconds, log, shown=False)
        return status, log.read_text()

    def test_keep_the_output_of_both_streams_and_the_status(self):
        self.assertEqual(self.run_shell("echo out; echo err >&2; exit 3"), (3, "out\nerr\n"))

    def test_are_ended_after_their_seconds(self):
        status, output = self.run_shell("echo before; sleep 20", 1)
        self.assertEqual((status, output), (run.NO_TIME, "before\n"))
        self.assertTrue(run.ran_out(status, 1, 1))

    def test_are_not_waited_for_by_what_they_leave_behind(self):
        began = time.monotonic()
        self.assertEqual(self.run_shell("sleep 100 & echo left"), (0, "left\n"))
        self.assertLess(time.monotonic() - began, 50)

    def test_killed_ones_have_not_run_out_of_time(self):
        status, _ = self.run_shell("kill -KILL $$")
        self.assertEqual(status, 137)
        self.assertFalse(run.ran_out(status, 1, 10))

    def test_that_fail_or_are_missing_say_nothing_when_asked(self):
        self.assertEqual(run.Programs.ask("echo", "it"), "it")
        self.assertEqual(run.Programs.ask("bash", "-c", "echo it; exit 1"), "")
        self.assertEqual(run.Programs.ask(str(self.folder / "nosuch")), "")

    def lose(self, said):
        rank = self.folder / "rank.sh"
        rank.write_text(RANK)
        rank.chmod(0o755)
        (self.folder / "rank-1").unlink(missing_ok=True)
        return subprocess.run(["scripts/gpu_check/lose_a_rank.sh", "3", "1", str(rank), said], cwd=ROOT, text=True,
                              capture_output=True, timeout=60)

    def test_of_a_job_must_leave_with_the_name_of_the_lost_rank(self):
        named = self.lose("rank 1 (process 5 on here) has left")
        self.assertEqual(named.returncode, 0, named.stdout)
        self.assertRegex(named.stdout, r"the others left \d+ ms after rank 1 was killed, status \d+; 2 of 2 named it")
        unnamed = self.lose("something")
        self.assertEqual(unnamed.returncode, 3, unnamed.stdout)
        self.assertIn("0 of 2 named it", unnamed.stdout)


if __name__ == "__main__":
    unittest.main()
