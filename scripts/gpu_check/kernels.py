"""Part kernels: the benchmark's groups, judged beside their limits, and AdamW beside PyTorch's."""

import json
import re

import steps
from run import quotient, told

MOVING = ("cast", "squared norm", "layer norm backward", "cross entropy")
MODELS = ("gpt2:64", "gpt2-xl:8")  # the trainings that part train compares with PyTorch
BARS = {"AdamW, fp32 gradients": "adamw_fp32", "AdamW, bf16 gradients": "adamw_bf16"}


def bench(part, *arguments, launch=(), makes=()):
    """Runs the benchmark. Returns the result and the samples, none if it failed."""
    words = "-".join(map(str, arguments)).replace(str(part.call.work), "").replace("/", "")
    file = part.call.work / "samples" / f"{part.name}-{words}.json"
    file.parent.mkdir(exist_ok=True)
    small = ["--small"] if part.call.emulated else []
    result = part.keep("table", *launch, part.call.bench, *small, *arguments, "--json", file,
                       makes=[file, *makes])
    samples = json.loads(file.read_text())["samples"] if result.status == 0 else []
    for one in samples:
        one["value"] = rounded(one["value"])
        for limit in one["limits"]:
            limit["ratio"] = rounded(limit["ratio"])
    return result, samples


def rounded(value):
    return None if value is None else float(f"{value:.4g}")


def ratios(samples, limit):
    """The samples beside such a limit, as pairs of the ratio and the sample."""
    return [(other["ratio"], one) for one in samples for other in one["limits"]
            if other["name"] == limit and other["ratio"] is not None]


def amount(one):
    return f"{told(one['value'])} {one['unit']}"


def run(part):
    part.timed = True
    result, adamw = group(part, "adamw")
    for name, bar in BARS.items():
        beside_copy(part, bar, result, [pair for pair in ratios(adamw, "device copy") if pair[1]["name"] == name])
    beside_torch(part, next((one["value"] for one in adamw if one["name"] == "AdamW, fp32 gradients"), None))
    judge_products(part, *group(part, "products"))
    # The fastest of the algorithms that cuBLASLt offers, for `tessera train --products`.
    products = part.call.work / "products.json"
    group(part, "--choose", products, *([] if part.call.emulated else MODELS), makes=[products])
    group(part, "attention")
    group(part, "decoder")
    judge_moving(part, *group(part, "memory"))
    for name in ("collectives", "host", "launches"):
        group(part, name)


def group(part, *arguments, makes=()):
    """Runs a group of the benchmark, and records its figures."""
    result, samples = bench(part, *arguments, makes=makes)
    part.samples += samples
    for one in samples:
        part.figure(one["name"], one["shape"], one["value"], one["unit"])
        for limit in one["limits"]:
            name, bar = f"{one['name']} / {limit['name']}", BARS.get(one["name"])
            part.figure(name, one["shape"], limit["ratio"], "ratio", bar)
    return result, samples


def beside_copy(part, bar, result, pairs):
    if not pairs:
        part.judge(bar, "not measured", result.reason, result.shown)
        return
    (ratio, one), = pairs
    limit = one["limits"][0]
    text = f"{told(ratio)} ({amount(one)}, {limit['name']}: {told(rounded(limit['value']))} {one['unit']})"
    part.at_least(bar, ratio, 0.90, text, result.shown)


def beside_torch(part, ours):
    if not part.call.has_torch():
        part.judge("adamw_torch", "not measured", "no python3 with PyTorch 2")
        return
    elems = 1000 if part.call.emulated else 500_000_000
    result = part.keep("table", part.call.python, "bench/peers/torch_adamw.py", "--device",
                       "cpu" if part.call.emulated else "cuda", "--parameters", elems)
    theirs = steps.json_of(result).get("adamw_gb_per_second")
    shape = f"{elems} parameters"
    part.figure("PyTorch's AdamW, fp32 gradients", shape, theirs, "GB/s")
    part.figure("AdamW, fp32 gradients / PyTorch", shape, quotient(ours, theirs), "ratio", "adamw_torch")
    if ours is None or theirs is None:
        text = f"ours: {told(ours)}, PyTorch's: {told(theirs, result.reason)}"
        part.judge("adamw_torch", "not measured", text, result.shown)
    else:
        part.at_least("adamw_torch", ours, theirs, f"{told(ours)} GB/s, PyTorch's {told(theirs)} GB/s", result.shown)


def judge_products(part, result, samples):
    """Judges the products that were also measured with plain cuBLASLt."""
    pairs = ratios(samples, "plain cuBLASLt")
    if not pairs:
        text = result.reason if result.status else "nothing beside it, no plain cuBLASLt was built in"
        part.judge("products", "not measured", text, result.shown)
        return
    least, one = min(pairs, key=lambda pair: pair[0])
    part.figure("the slowest product / plain cuBLASLt", f"{len(pairs)} products", least, "ratio", "products")
    text = f"{told(least)}, the least of {len(pairs)}: {one['name']}, {one['shape']}"
    part.at_least("products", least, 0.97, text, result.shown)


def judge_moving(part, result, samples):
    pairs = [pair for pair in ratios(samples, "device copy") if re.match("|".join(MOVING), pair[1]["name"])]
    if pairs:
        least, one = min(pairs, key=lambda pair: pair[0])
        part.at_least("moving", least, 0.80, f"{told(least)} {one['name']}", result.shown)
    else:
        part.judge("moving", "not measured", result.reason if result.status else "no figure", result.shown)
