#!/usr/bin/env python3
"""Computes the fraction of a run's gathers that computation hid.

  hidden.py TRACE

TRACE is a file of `tessera train --trace`. The fraction is that of rank 0's last step, from the end of
the previous step's passes on: the time in which a gather and a forward or backward pass run together,
divided by the time in which a gather runs. Prints the number, or with status 1 why there is none.
"""

import json
import sys


def union(spans):
    """Disjoint spans that cover the same times."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def length(spans):
    return sum(end - begin for begin, end in spans)


def overlap(some, others):
    return length([(max(a, c), min(b, d)) for a, b in some for c, d in others if max(a, c) < min(b, d)])


def spans_of(events, streams):
    names = {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    found = {stream: [] for stream in streams}
    for event in events:
        stream = names.get(event.get("tid"), "").split(" ")[0]
        if event.get("ph") == "X" and stream in found:
            found[stream].append(event)
    return found


def share_of(events):
    found = spans_of([event for event in events if event.get("pid") == 0], ("compute", "gather"))
    passes = [event for event in found["compute"] if event["cat"] in ("forward", "backward")]
    if not passes:
        return "the trace has no passes"
    last = max(event["args"]["step"] for event in passes)
    begin = max((event["ts"] + event["dur"] for event in passes if event["args"]["step"] < last), default=0)
    passes = union((event["ts"], event["ts"] + event["dur"]) for event in passes if event["args"]["step"] == last)
    gathers = union((event["ts"], event["ts"] + event["dur"]) for event in found["gather"]
                    if event["cat"] == "all_gather" and event["ts"] >= begin)
    if length(gathers) <= 0:
        return "the trace has no gathers in its last step"
    return overlap(gathers, passes) / length(gathers)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    share = share_of(document["traceEvents"] if isinstance(document, dict) else document)
    if isinstance(share, str):
        print(share)
        return 1
    print(f"{share:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
