"""Part sanitize: the four tools of compute-sanitizer on the tests of kernels, each with its own limit of time."""

import re

from parts import SANITIZERS
from run import NO_TIME

# Racecheck checks only shared memory, so it runs the kernels that sum in it.
SUMS = ":".join(f"*{name}*/cuda" for name in (
    "SquaredNorm", "LayerNorm", "CrossEntropy", "Bias", "Attention", "Embedding"))
CASES = {"memcheck": "*/cuda", "racecheck": SUMS, "initcheck": "*/cuda", "synccheck": SUMS}


def command(part, tool):
    """Excludes tests of long sequences, which check bits and would take hours under a tool, and of products, which
    cuBLASLt computes."""
    return ["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, "--print-limit", 20,
            part.call.build / "tests/test_kernels", "--gtest_brief=1",
            f"--gtest_filter={CASES[tool]}-*LongSequence*:*MatMul*"]


def run(part):
    if part.call.emulated or not part.call.programs.has("compute-sanitizer"):
        for tool in SANITIZERS:
            part.judge(tool, "not measured", "no compute-sanitizer, or no device for it")
        return
    left = [tool for tool in SANITIZERS if not part.is_done(command(part, tool))]
    for tool in SANITIZERS:
        seconds = part.left() // len(left) if tool in left else None
        left = [each for each in left if each != tool]
        judge(part, tool, part.keep(12, *command(part, tool), allowed=range(256), seconds=seconds), seconds)


def judge(part, tool, result, seconds):
    """A tool that refuses the device finds nothing and counts no errors; the output of the programs may also mention
    unsupported features."""
    refusal = re.search(r"^=+ (.*(not supported|unable to find).*)", result.log, re.M | re.I)
    summary = (re.findall(r"^=+ *(.*SUMMARY.*)", result.log, re.M) or [""])[-1]
    errors = re.search(r"(\d+) error", summary)
    part.figure(f"{tool}, errors", "", int(errors[1]) if errors else None, "errors", tool)
    if result.status == NO_TIME:
        part.judge(tool, "not measured", f"there was no time for it, or for its end: {seconds} s", result.shown)
    elif result.status == 0 and summary:
        part.judge(tool, "met", summary, result.shown)
    elif result.status != 9 and refusal and not (errors and int(errors[1])):
        part.judge(tool, "not measured", f"it refuses this device: {refusal[1]}", result.shown)
    else:
        part.fails(f"{tool}, status {result.status}")
        part.judge(tool, "NOT met", f"status {result.status}; {summary or 'no summary'}", result.shown)
