#!/usr/bin/env python3
"""Times steps of a GPT-2 in PyTorch on one device, for scripts/gpu_check.sh.

  torch_gpt.py --layers L --hidden H --heads A --seq T --vocab V --batch B
               [--steps K] [--device cuda|cpu] [--compile] [--ddp]

fp32 parameters under bf16 autocast, flash attention (scaled_dot_product_attention), AdamW (fused
on CUDA), clipping at 1: what a PyTorch user would write. --ddp wraps the model in
DistributedDataParallel, in a job of one process, to measure the memory of its buckets. Prints one
JSON object: the median tokens per second of the later half of the steps, and the most bytes that the
allocator held and reserved. The exit status is 3 if the model does not fit the device's memory.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(hidden)
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.attn_proj = nn.Linear(hidden, hidden)
        self.ln_2 = nn.LayerNorm(hidden)
        self.c_fc = nn.Linear(hidden, 4 * hidden)
        self.mlp_proj = nn.Linear(4 * hidden, hidden)

    def attend(self, x):
        batch, seq, hidden = x.shape
        q, k, v = (
            part.view(batch, seq, self.heads, hidden // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(hidden, dim=2)
        )
        joined = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_proj(joined.transpose(1, 2).reshape(batch, seq, hidden))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Learned positions, pre-norm, head tied to the token embedding."""

    def __init__(self, args):
        super().__init__()
        self.wte = nn.Embedding(args.vocab, args.hidden)
        self.wpe = nn.Embedding(args.seq, args.hidden)
        self.blocks = nn.ModuleList(Block(args.hidden, args.heads) for _ in range(args.layers))
        self.ln_f = nn.LayerNorm(args.hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


@contextlib.contextmanager
def job_of_one(device):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29591")
    backend = "nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def train(args):
    cuda = args.device == "cuda"
    torch.manual_seed(1)
    model = GPT(args).to(args.device)
    net = torch.compile(model) if args.compile else model
    if args.ddp:
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    settings = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    if cuda:
        settings["fused"] = True
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    seconds = []
    for _ in range(args.steps):
        tokens, targets = torch.randint(
            0, args.vocab, (2, args.batch, args.seq), device=args.device
        )
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = net(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    result = {
        "torch": torch.__version__,
        "batch": args.batch,
        "compiled": args.compile,
        "ddp": args.ddp,
        "loss": loss.item(),
        "seconds": statistics.median(seconds[len(seconds) // 2 :]),
    }
    result["tokens_per_second"] = round(args.batch * args.seq / result["seconds"], 1)
    if cuda:
        result["max_memory_allocated"] = torch.cuda.max_memory_allocated()
        result["max_memory_reserved"] = torch.cuda.max_memory_reserved()
    print(json.dumps(result))


def out_of_memory(error):
    """Whether lack of memory is the cause: a compiler's errors may wrap it."""
    while error is not None:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "hidden", "heads", "seq", "vocab", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--ddp", action="store_true")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    with job_of_one(args.device) if args.ddp else contextlib.nullcontext():
        try:
            train(args)
        except Exception as error:
            if not out_of_memory(error):
                raise
            print(f"out of memory: {error}", file=sys.stderr)
            sys.exit(3)


if __name__ == "__main__":
    main()
