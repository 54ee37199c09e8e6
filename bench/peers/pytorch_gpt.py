#!/usr/bin/env python3
"""Steps of the GPT of docs/benchmarks/cpu.md in PyTorch: fp32, AdamW, one thread per rank.

  pytorch_gpt.py single | ddp | zero1 [--ranks 2] [--steps 10]

Prints one JSON object with the seconds of each timed step on rank 0 (from a barrier of all ranks
until the last rank has finished), and the processor seconds of its threads.
"""

import argparse
import json
import math
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

LAYERS, HIDDEN, HEADS, SEQ, BATCH, VOCAB = 4, 256, 4, 128, 8, 1024
UNTIMED = 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(HIDDEN)
        self.c_attn = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.attn_proj = nn.Linear(HIDDEN, HIDDEN)
        self.ln_2 = nn.LayerNorm(HIDDEN)
        self.c_fc = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.mlp_proj = nn.Linear(4 * HIDDEN, HIDDEN)
        self.mask = torch.full((SEQ, SEQ), float("-inf")).triu(1)

    def attend(self, x):
        batch, seq, _ = x.shape
        q, k, v = (
            part.view(batch, seq, HEADS, HIDDEN // HEADS).transpose(1, 2)
            for part in self.c_attn(x).split(HIDDEN, dim=2)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
        weights = (scores + self.mask).softmax(dim=3)
        joined = (weights @ v).transpose(1, 2).reshape(batch, seq, HIDDEN)
        return self.attn_proj(joined)

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Like GPT-2: learned positions, pre-norm, head tied to the token embedding."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, HIDDEN)
        self.wpe = nn.Embedding(SEQ, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(HIDDEN)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def make_optimizer(mode, model):
    settings = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    if mode == "zero1":
        return ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, **settings
        )
    return torch.optim.AdamW(model.parameters(), **settings)


def time_steps(mode, rank, ranks, steps):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = GPT()
    net = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = make_optimizer(mode, net)
    generator = torch.Generator().manual_seed(rank)
    tokens, targets = torch.randint(0, VOCAB, (2, BATCH, SEQ), generator=generator)
    seconds, cpu_seconds = [], []
    for step in range(UNTIMED + steps):
        if ranks > 1:
            dist.barrier()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = net(tokens, targets)
        loss.backward()
        optimizer.step()
        if ranks > 1:
            dist.barrier()
        if step >= UNTIMED:
            seconds.append(time.perf_counter() - begin)
            cpu_seconds.append(time.process_time() - cpu_begin)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def run_rank(rank, mode, ranks, steps, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if ranks > 1:
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
    times = time_steps(mode, rank, ranks, steps)
    if rank == 0:
        print(json.dumps({"name": f"pytorch {mode}", **times}), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["single", "ddp", "zero1"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    if args.mode == "single":
        run_rank(0, "single", 1, args.steps, 0)
        return
    mp.spawn(
        run_rank, args=(args.mode, args.ranks, args.steps, free_port()), nprocs=args.ranks
    )


if __name__ == "__main__":
    main()
