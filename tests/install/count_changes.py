#!/usr/bin/env python3
"""Prints by how many lines two parts of a source differ: what stands between // [NAME] and // [/NAME]. Or
two sources.

    count_changes.py SOURCE plain wrapped
    count_changes.py BEFORE AFTER
"""
import difflib
import os
import re
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def part(text, name):
    found = re.search(rf"^// \[{name}\]\n(.*?)^// \[/{name}\]$", text, re.DOTALL | re.MULTILINE)
    if not found:
        sys.exit(f"error: {sys.argv[1]} has no part [{name}]")
    return found[1]


def code(text):
    # Ignores indentation, comments, and lines with only braces.
    lines = [re.sub(r"\s*//.*", "", line).strip() for line in text.splitlines()]
    return [line for line in lines if re.search(r"\w", line)]


def main():
    *source, before, after = sys.argv[1:]
    if source:
        text = read(source[0])
        old, new = code(part(text, before)), code(part(text, after))
    else:
        old, new = code(read(before)), code(read(after))
        before, after = os.path.basename(before), os.path.basename(after)
    kept = sum(block.size for block in difflib.SequenceMatcher(None, old, new, False).get_matching_blocks())
    print(f"{before} {len(old)} lines, {after} {len(new)}: {kept} are the same, "
          f"{len(old) - kept} have gone, {len(new) - kept} are new")


main()
