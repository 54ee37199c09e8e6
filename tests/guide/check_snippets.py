#!/usr/bin/env python3
"""Expects every ```cpp block of a page to be text of a compiled program.

  check_snippets.py PAGE SOURCE...

A block without a file's name is a piece of one of the sources, to the letter. The status is 1 and
the block is printed where it is not, or where the page has none.
"""

import re
import sys
from pathlib import Path


def main():
    page, *sources = sys.argv[1:]
    programs = [Path(source).read_text(encoding="utf-8") for source in sources]
    blocks = re.findall(r"^```cpp\n(.*?)^```$", Path(page).read_text(encoding="utf-8"),
                        re.MULTILINE | re.DOTALL)
    missing = [block for block in blocks if not any(block in program for program in programs)]
    for block in missing:
        print(f"{page} shows what none of {', '.join(sources)} has:\n{block}")
    if missing or not blocks:
        sys.exit(f"{len(missing)} of {len(blocks)} blocks are missing")


if __name__ == "__main__":
    main()
