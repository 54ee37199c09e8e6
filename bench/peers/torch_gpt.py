#!/usr/bin/env python3
"""Times steps of a GPT-2 or a Qwen 3 in PyTorch on one device, for scripts/gpu_check.sh.

  torch_gpt.py --layers L --hidden H --heads A --seq T --vocab V --batch B
               [--kv-heads K --head-size D --wide W] [--steps N] [--device cuda|cpu] [--compile] [--ddp]

A GPT-2, or with --kv-heads a Qwen 3: RMSNorm, over heads too, rotary positions, keys that query
heads share, SwiGLU.

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


class Qwen3Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, self.kv_heads, self.size = args.heads, args.kv_heads, args.head_size
        self.norm_1 = nn.RMSNorm(args.hidden, eps=1e-6)
        self.q_norm = nn.RMSNorm(args.head_size, eps=1e-6)
        self.k_norm = nn.RMSNorm(args.head_size, eps=1e-6)
        packed = (args.heads + 2 * args.kv_heads) * args.head_size
        self.qkv = nn.Linear(args.hidden, packed, bias=False)
        self.out = nn.Linear(args.heads * args.head_size, args.hidden, bias=False)
        self.norm_2 = nn.RMSNorm(args.hidden, eps=1e-6)
        self.gate_up = nn.Linear(args.hidden, 2 * args.wide, bias=False)
        self.down = nn.Linear(args.wide, args.hidden, bias=False)
        angles = torch.outer(
            torch.arange(args.seq), 1e6 ** (-torch.arange(0, args.head_size, 2) / args.head_size)
        )
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def turned(self, x):
        a, b = x.float().chunk(2, dim=-1)
        cos, sin = self.cosines, self.sines
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    def attend(self, x):
        batch, seq, _ = x.shape
        heads = self.qkv(x).view(batch, seq, -1, self.size).transpose(1, 2)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        q, k = self.turned(self.q_norm(q)).to(v.dtype), self.turned(self.k_norm(k)).to(v.dtype)
        joined = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(joined.transpose(1, 2).reshape(batch, seq, -1))

    def forward(self, x):
        x = x + self.attend(self.norm_1(x))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class GPT(nn.Module):
    """Learned or rotary positions, pre-norm, head tied to the token embedding."""

    def __init__(self, args):
        super().__init__()
        qwen3 = args.kv_heads > 0
        self.wte = nn.Embedding(args.vocab, args.hidden)
        self.wpe = None if qwen3 else nn.Embedding(args.seq, args.hidden)
        self.blocks = nn.ModuleList(
            Qwen3Block(args) if qwen3 else Block(args.hidden, args.heads) for _ in range(args.layers)
        )
        self.ln_f = nn.RMSNorm(args.hidden, eps=1e-6) if qwen3 else nn.LayerNorm(args.hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
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
    for name in ("kv-heads", "head-size", "wide"):
        parser.add_argument(f"--{name}", type=int, default=0)
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
