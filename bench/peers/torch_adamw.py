#!/usr/bin/env python3
"""Times torch.optim.AdamW(fused=True) on one parameter, for scripts/gpu_check.sh.

  torch_adamw.py [--device cuda|cpu] [--parameters N] [--rounds R]

Alternates with a copy of the same bytes: fp32 parameter, gradient and moments, 28 bytes per element.
Prints a Markdown table, and the rate as JSON.
"""

import argparse
import json
import statistics
import time

import torch

BYTES = 28  # parameter and both moments read and written, gradient read


def timed(device, run, repeats):
    """Seconds per run, from the device's events if it has them."""
    if device == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / repeats
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--parameters", type=int, default=500_000_000)
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()

    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(args.parameters, device=args.device))
    weight.grad = torch.randn(args.parameters, device=args.device)
    fused = {"fused": True} if args.device == "cuda" else {}
    optimizer = torch.optim.AdamW([weight], lr=3e-4, **fused)
    half = args.parameters * BYTES // 2
    source = torch.randint(0, 256, (half,), dtype=torch.uint8, device=args.device)
    target = torch.empty_like(source)

    runs = {"AdamW": optimizer.step, "device copy": lambda: target.copy_(source)}
    for run in runs.values():
        timed(args.device, run, 3)
    seconds = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, run in runs.items():
            seconds[name].append(timed(args.device, run, 5))
    rate = {
        name: BYTES * args.parameters / statistics.median(times) * 1e-9
        for name, times in seconds.items()
    }
    print(f"PyTorch {torch.__version__}, {args.parameters} parameters, fp32\n")
    print("| operation | PyTorch, median | limit in the same rounds | of the limit |")
    print("|---|---|---|---|")
    print(
        f"| AdamW({'fused' if fused else ''}), fp32 gradients | {rate['AdamW']:.0f} GB/s"
        f" | device copy: {rate['device copy']:.0f} GB/s"
        f" | {rate['AdamW'] / rate['device copy']:.3f} |\n"
    )
    print(json.dumps({"adamw_gb_per_second": float(f"{rate['AdamW']:.4g}")}))


if __name__ == "__main__":
    main()
