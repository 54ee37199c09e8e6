"""The fraction of a run's gathers that computation hid, from a file of `tessera train --trace`."""


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


def share_of(trace):
    """Of rank 0's last step, from the end of the previous step's passes on: the time in which a gather and a forward or
    backward pass run together, divided by the time in which a gather runs. A text says why there is none."""
    events = [event for event in (trace["traceEvents"] if isinstance(trace, dict) else trace) if event.get("pid") == 0]
    streams = {event["tid"]: event["args"]["name"].split(" ")[0]
               for event in events if event.get("name") == "thread_name"}

    def spans_of(stream, *kinds):
        return [(event["ts"], event["ts"] + event["dur"], event) for event in events
                if event.get("ph") == "X" and streams.get(event.get("tid")) == stream and event["cat"] in kinds]

    passes = spans_of("compute", "forward", "backward")
    if not passes:
        return "the trace has no passes"
    last = max(event["args"]["step"] for _, _, event in passes)
    begin = max((end for _, end, event in passes if event["args"]["step"] < last), default=0)
    passes = union((start, end) for start, end, event in passes if event["args"]["step"] == last)
    gathers = union((start, end) for start, end, _ in spans_of("gather", "all_gather") if start >= begin)
    if length(gathers) <= 0:
        return "the trace has no gathers in its last step"
    return overlap(gathers, passes) / length(gathers)
