#!/usr/bin/env python3
"""Lists phrases that readers stumble over, with what to write instead (CONTRIBUTING.md).

  scripts/plain_words.py [PATH...]    files and folders of the repository; default: all of it
  scripts/plain_words.py --count      how many each top folder has

The status is 1 where it finds one. Records of the past (CHANGELOG.md, docs/decisions) are read too.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".md", ".py", ".sh", ".js", ".cmake", ".txt", ".html", ".css"}

# What to look for in any line, and what to write.
PHRASES = [
    (r"\bwhoever\b|\bwhomever\b", "name who: 'the rank that', 'any rank', 'the caller'"),
    (r"\bwhich ha(s|ve)\b", "'with', or a sentence of its own"),
    (r"\bthe ones? that\b", "the noun itself"),
    (r"\bthat which\b|\bthereof\b|\btherein\b|\bhereby\b|\bwherein\b", "the noun itself"),
    (r"\b(has|have|had|is|are|been|be) come to\b|\bcomes? to (its|their|the|a|an|it)\b", "'reaches'"),
    (r"\bnot have come to\b", "'not have happened'"),
    (r"\b(has|have|had) gone (out|on|away|then)\b", "'was sent', 'went on', 'ended'"),
    (r"\bmeanwhile\b", "'while ...', and say what"),
    (r"\bin its stead\b|\bin their stead\b", "'instead'"),
    (r"\b(has|have|had) it from\b", "'takes it from'"),
    (r"\b(tell|tells|told|telling) (it |them |one |two )?apart\b", "'distinguish'"),
    (r"\b(keeps?|kept|keeping) silent\b", "'sends nothing'"),
    (r"\bhas the word\b", "'reports first'"),
    (r"\b(hold|holds|held|holding) (it |them )?to the (seconds|second)\b", "'limit to'"),
    (r"\bthere are not\b(?! (enough|any|as|so|yet))", "'that do not exist', 'invalid'"),
    (r"\bof (as|so) many\b", "give the count"),
    (r"\bfor this (machine|one) alone\b", "'on this machine only'"),
    (r"\b(lets?|letting) go\b(?! of)", "'release'"),
    (r"\bmake(s)? (it|one|them|the one) go\b", "'evict', 'release'"),
    (r"\bgoes? by\b", "'depends on', 'follows'"),
]

# What no documentation comment begins with: a clause without a subject, or half a sentence.
OPENINGS = [
    (r"^\s*///<?\s+(Of|That|Either's|Whoever|Also|Else|Likewise|Those|Such)\b", "begin with a noun or a verb"),
    (r"^\s*///<?\s+(Which|Who|Whom)\b(?!.*\?)", "begin with the noun: 'The rank that'"),
]


def files(paths):
    out = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=ROOT, capture_output=True,
                         check=True, text=True).stdout
    for name in filter(None, out.split("\0")):
        path = ROOT / name
        if path.suffix in TEXTS and path.is_file() and path != Path(__file__).resolve():
            yield name, path


def findings(paths):
    rules = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in PHRASES]
    rules += [(re.compile(pattern), advice) for pattern, advice in OPENINGS]
    for name, path in files(paths):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for rule, advice in rules:
                if found := rule.search(line):
                    yield name, number, found.group(0).strip(), advice


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--count", action="store_true", help="how many each top folder has")
    arguments = parser.parse_args()
    found = list(findings(arguments.paths))
    if arguments.count:
        for folder, count in Counter(name.split("/")[0] for name, *_ in found).most_common():
            print(f"{count:5} {folder}")
    else:
        for name, number, phrase, advice in found:
            print(f"{name}:{number}: '{phrase}': write {advice}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
