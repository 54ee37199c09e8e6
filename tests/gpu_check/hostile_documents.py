#!/usr/bin/env python3
"""What scripts/gpu_check/figures.py says of files that are no gpu.json, or broken ones.

  hostile_documents.py GOOD SCRATCH

GOOD is a document with the part `sanitize` alone, of four figures. Fails with a list of those that
are not refused, or not with the text that they should be.
"""

import copy
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/gpu_check"))

import figures  # noqa: E402


def changed(good, change):
    document = copy.deepcopy(good)
    change(document, document["parts"][0])
    return document


def changes(good):
    """Documents that are JSON, and what is wrong with each."""
    first_figure = good["parts"][0]["figures"][0]
    yield "of version 2", changed(good, lambda d, p: d.update(version=2))
    yield "version is not a finite number", changed(good, lambda d, p: d.update(version="1"))
    yield 'it has no "format": "tessera gpu_check"', changed(good, lambda d, p: d.update(format=1))
    yield 'it has no "format": "tessera gpu_check"', []
    yield 'the document has no "parts"', changed(good, lambda d, p: d.pop("parts"))
    yield "parts is not a list", changed(good, lambda d, p: d.update(parts={}))
    yield "parts[0] is no object", changed(good, lambda d, p: d.update(parts=[1]))
    yield "parts[1].name is there twice", changed(good, lambda d, p: d["parts"].append(p))
    yield 'parts[0] has no "date"', changed(good, lambda d, p: p.pop("date"))
    yield "commit is not one line of text", changed(good, lambda d, p: p.update(commit="a\n\n## b"))
    yield "machine is not an object", changed(good, lambda d, p: p.update(machine=[]))
    yield "machine.device is not one line", changed(good, lambda d, p: p["machine"].update(device=None))
    yield "machine has a name that is not one line", changed(good, lambda d, p: p["machine"].update({"a\nb": ""}))
    yield "bars[0].verdict is none of met", changed(good, lambda d, p: p["bars"][0].update(verdict="fine"))
    yield "bars[4].id is there twice", changed(good, lambda d, p: p["bars"].append(p["bars"][0]))
    yield "figures[1].bar is none of", changed(good, lambda d, p: p["figures"][1].update(bar="nosuch"))
    yield "figures[1].verdict is none of met", changed(good, lambda d, p: p["figures"][1].update(verdict=""))
    yield "figures[4] is there twice", changed(good, lambda d, p: p["figures"].append(first_figure))
    for value in ("7", True, None, [], 10**400):
        yield "figures[0].value is not a finite", changed(good, lambda d, p: p["figures"][0].update(value=value))


def texts(good):
    """Contents that are not JSON, or not in time."""
    text = json.dumps(good)
    yield "figures[0].value is not a finite", text.replace('"value": 0', '"value": 1e999', 1).encode()
    yield "it is not JSON: NaN is no number", text.replace('"value": 0', '"value": NaN', 1).encode()
    yield "it is not JSON: a number has too many digits", b'{"format": ' + 6000 * b"9" + b"}"
    yield "it is not JSON: ", text[:500].encode()
    yield "it is not JSON: ", b""
    yield "nested too deeply", 100_000 * b"["
    yield "not text in UTF-8", b"\xff\xfe"
    yield "at most 16777216 are read", 2**24 * b" " + b"{}"


def wrong(path):
    """What is said of it, or that nothing is."""
    try:
        figures.read(path)
        return "accepted"
    except figures.Wrong as error:
        return str(error)


def main():
    good_path, scratch = sys.argv[1:]
    os.mkdir(scratch)
    os.mkfifo(f"{scratch}/fifo")
    good = figures.read(good_path)
    cases = [("No such file", f"{scratch}/nosuch"), ("it is not a file", scratch), ("it is not a file", f"{scratch}/fifo"),
             ("it is not a file", "/dev/zero"), ("not text", "a\0b")]
    contents = [(need, json.dumps(document).encode()) for need, document in changes(good)]
    for i, (need, content) in enumerate([*contents, *texts(good)]):
        with open(f"{scratch}/{i}", "wb") as file:
            file.write(content)
        cases.append((need, f"{scratch}/{i}"))
    failed = [f"{path}: {said}; wanted: {need}" for need, path in cases if need not in (said := wrong(path))]
    print("\n".join(failed) or f"{len(cases)} are refused")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
