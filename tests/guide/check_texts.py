#!/usr/bin/env python3
"""Expects the texts that a page shows to stand in the sources.

  check_texts.py PAGE FOLDER...

The texts are those in the first column of the tables that begin with "| you see |"; `...` in one
stands for any words. The status is 1 where a text is in no source, or where the page has none.
"""

import re
import sys
from pathlib import Path


def texts_of(page):
    """Yields the texts of the page's tables."""
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        inside = line.startswith("| you see |") or (inside and line.startswith("|"))
        if inside and (text := re.match(r"\| `([^`]+)` \|", line)):
            yield text.group(1)


def joined(source):
    """Returns the text of `source`, with the pieces of each broken literal in one line."""
    return re.sub(r'"\s*\n\s*"', "", source.read_text(encoding="utf-8"))


def main():
    page, *folders = (Path(argument) for argument in sys.argv[1:])
    sources = [joined(file) for folder in folders for file in sorted(folder.rglob("*.cpp"))]
    texts = list(texts_of(page))
    missing = []
    for text in texts:
        words = [re.escape(piece) for piece in text.strip(".").split("...")]
        pattern = re.compile(r"[^\n]{0,200}?".join(words))
        if not any(pattern.search(source) for source in sources):
            missing.append(text)
    for text in missing:
        print(f"{page} shows what no source says:\n{text}")
    if missing or not texts:
        sys.exit(f"{len(missing)} of {len(texts)} texts are missing")
    print(f"{len(texts)} texts")


if __name__ == "__main__":
    main()
