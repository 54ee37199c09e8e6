#!/usr/bin/env python3
"""Prints by how many lines two parts of a source differ: what stands between // [NAME] and // [/NAME].

    count_changes.py SOURCE plain wrapped
"""
import difflib
import re
import sys


def part(text, name):
    found = re.search(rf"^// \[{name}\]\n(.*?)^// \[/{name}\]$", text, re.DOTALL | re.MULTILINE)
    if not found:
        sys.exit(f"error: {sys.argv[1]} has no part [{name}]")
    # Indentation, comments, and lines that hold nothing but braces are no difference.
    lines = [re.sub(r"\s*//.*", "", line).strip() for line in found[1].splitlines()]
    return [line for line in lines if re.search(r"\w", line)]


def main():
    source, before, after = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    old, new = part(text, before), part(text, after)
    kept = sum(block.size for block in difflib.SequenceMatcher(None, old, new, False).get_matching_blocks())
    print(f"{before} {len(old)} lines, {after} {len(new)}: {kept} are the same, "
          f"{len(old) - kept} have gone, {len(new) - kept} are new")


main()
