#!/usr/bin/env python3
"""Lists tolerances in tests that are bare numbers, such as EXPECT_NEAR(a, b, 1e-6): where do they come from?

A tolerance that compares sums is computed from the number of roundings (tests/support/rounding.hpp). Where one stays
a number, a comment on its line or right above the statement says why:

    // bound: the loss is printed with 6 digits

A comment `// bounds: ...` in the first 20 lines of a file says it for the whole file. The status is 1 if a number is
without such a comment.

    scripts/tolerances.py [--all] [FILE...]      --all lists those with a comment too
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".cpp", ".hpp", ".cu", ".py"}
# Files whose tolerances are of times, rates, bytes or schedules, not of sums.
NOT_SUMS = ("tests/profile/", "tests/report/", "tests/emulated_cuda/", "tests/install/",
            "tests/pipeline/schedule_test.cpp", "tests/cli/optimizer_test.cpp", "tests/cli/paper_table_test.cpp",
            "tests/cli/plan_test.cpp", "tests/cli/plan_time_test.cpp")

SMALL = r"\b\d+\.?\d*e-\d+F?\b"
# Calls whose last argument is the tolerance.
NEAR = re.compile(r"\b(?:EXPECT_NEAR|ASSERT_NEAR|FloatNear|DoubleNear|isclose|expect_close|expect_near|"
                  r"expect_within)\(")
ALL_CLOSE = re.compile(r"\ballclose\([^;]*" + SMALL)  # has two tolerances
# A difference compared with a small number; a tolerance with a name.
COMPARED = re.compile(r"(?:\b(?:EXPECT|ASSERT)_L[TE]\(| <=? )[^;]*" + SMALL)
NAMED = re.compile(r"\b\w*(?:tolerance|bound|slack|within|near|apart)\w* = [^;]*(?:" + SMALL + r"|\b0\.0\d*[1-9]F?)",
                   re.IGNORECASE)


def statements(lines, is_python):
    """Yields (first line's number, last line's, text without comments and texts) of each statement."""
    first, text = None, ""
    for number, line in enumerate(lines):
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)
        code = re.sub(r"(?://|#).*", "", code).strip()
        if not code:
            continue
        if first is None:
            first = number
        text += code + " "
        if text.count("(") == text.count(")") if is_python else code[-1] in ";{}:":
            yield first, number, text
            first, text = None, ""


def last_argument(text, start):
    """The last argument of the call whose arguments begin at `start`."""
    depth, begin = 0, start
    for at in range(start, len(text)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            if depth == 0:
                return text[begin:at]
            depth -= 1
        elif text[at] == "," and depth == 0:
            begin = at + 1
    return text[begin:]


def is_number(tolerance):
    """Whether it is a number, or a small one times something: 1e-6, 0.02, 1e-6 * norm, but not 0.25 * bound."""
    return re.search(SMALL + r"|^\s*0\.0\d*[1-9]F?\s*(\*|$)|^\s*0\.[1-9]\d*F?\s*$", tolerance) is not None


def is_bare(text):
    if any(is_number(last_argument(text, call.end())) for call in NEAR.finditer(text)):
        return True
    return any(pattern.search(text) for pattern in (ALL_CLOSE, COMPARED, NAMED))


def is_explained(lines, first, last):
    if any("bound:" in line for line in lines[first : last + 1]):
        return True
    above = first - 1
    while above >= 0 and re.match(r"\s*(?://|#)", lines[above]):
        if re.search(r"(?://|#) bound:", lines[above]):
            return True
        above -= 1
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("files", nargs="*")
    asked = parser.parse_args()
    listed = asked.files or subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "tests"], cwd=ROOT,
                                           check=True, capture_output=True, text=True).stdout.split("\n")
    count = 0
    for name in sorted(listed):
        path = ROOT / name
        if path.suffix not in SUFFIXES or not path.is_file() or name.startswith(NOT_SUMS):
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        whole = any(re.match(r"(?://|#) bounds:", line) for line in lines[:20])
        for first, last, text in statements(lines, path.suffix == ".py"):
            if not is_bare(text):
                continue
            explained = whole or is_explained(lines, first, last)
            count += not explained
            if not explained or asked.all:
                print(f"{name}:{first + 1}: {text.strip()[:150]}")
    if count > 0:
        sys.exit(f"{count} tolerances are bare numbers: compute them, or say `// bound: where it comes from`")


if __name__ == "__main__":
    main()
