#!/usr/bin/env python3
"""Steps of the GPT of docs/benchmarks/cpu.md in PyTorch: AdamW, one thread per rank.

  pytorch_gpt.py single | ddp | zero1 | fsdp2 [--precision fp32|bf16] [--bucket-view] [--compile]
                 [--ranks 2] [--steps 10]

Takes what the version offers: scaled_dot_product_attention, fused AdamW, and for fsdp2 fully_shard of
each block and of the rest. bf16 has fp32 master weights, by MixedPrecisionPolicy under fsdp2 and by
autocast elsewhere. --bucket-view (gradient_as_bucket_view) saves DDP the copies of gradients into its
buckets and back.

Prints one JSON object with the seconds of each timed step on rank 0 (from a barrier of all ranks
until the last rank has finished), the processor seconds of its threads, and the mean loss over the
ranks in the first and in the last step. Each step has the same tokens, so the loss falls.
"""

import argparse
import contextlib
import json
import math
import os
import socket
import statistics
import sys
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
HAS_SDPA = hasattr(F, "scaled_dot_product_attention")


def attend_in_steps(q, k, v, mask):
    scores = q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
    return (scores + mask).softmax(dim=3) @ v


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
        if HAS_SDPA:
            heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            heads = attend_in_steps(q, k, v, self.mask)
        return self.attn_proj(heads.transpose(1, 2).reshape(batch, seq, HIDDEN))

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
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith("_proj.weight")
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS if residual else 1))
            elif name.endswith(".bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def random_tokens(seed):
    """The tokens of `tessera bench step`, so that losses are comparable."""
    tokens, state = [], seed
    for _ in range(BATCH * SEQ):
        state = (state * 1664525 + 1013904223) % 2**32
        tokens.append((state >> 8) % VOCAB)
    return torch.tensor(tokens).view(BATCH, SEQ)


def step_flops():
    """As tessera::bench::step_flops: without masking, backward as twice the forward."""
    token = 24 * LAYERS * HIDDEN * HIDDEN + 4 * LAYERS * SEQ * HIDDEN + 2 * HIDDEN * VOCAB
    return 3 * BATCH * SEQ * token


def fully_sharded(model, args):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (args.ranks,))
    policy = MixedPrecisionPolicy()
    if args.precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if args.compile:  # a whole model would break its graph at each block's hooks
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def distributed(model, args):
    if args.mode == "fsdp2":
        return fully_sharded(model, args)
    net = model
    if args.ranks > 1:
        net = DistributedDataParallel(model, gradient_as_bucket_view=args.bucket_view)
    return torch.compile(net) if args.compile else net


def make_optimizer(mode, model):
    settings = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    try:
        torch.optim.AdamW([nn.Parameter(torch.zeros(1))], fused=True)
        settings["fused"] = True
    except (RuntimeError, TypeError):  # an old version fuses on CUDA only, or not at all
        pass
    if mode == "zero1":
        return ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, **settings
        )
    return torch.optim.AdamW(model.parameters(), **settings)


def elems(parameters):
    """Of this rank: a sharded parameter counts with its shard."""
    return sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in parameters)


def mean_over_ranks(loss, ranks):
    value = loss.detach().to(torch.float64)
    if ranks > 1:
        dist.all_reduce(value)
    return value.item() / ranks


def refuse_scalar_code():
    """A compiler that cannot link vector functions makes compiled steps slow, without a warning."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    if not pick_vec_isa():
        sys.exit("error: torch.compile finds no vector instructions that it can compile for")


def time_steps(args, rank):
    torch.set_num_threads(1)
    if args.compile:
        refuse_scalar_code()
    torch.manual_seed(1)
    model = GPT()
    parameters = elems(model.parameters())
    net = distributed(model, args)
    optimizer = make_optimizer(args.mode, net)
    autocast = args.precision == "bf16" and args.mode != "fsdp2"
    tokens, targets = random_tokens(rank + 1), random_tokens(rank + 1001)
    seconds, cpu_seconds, losses = [], [], []
    for step in range(UNTIMED + args.steps):
        if args.ranks > 1:
            dist.barrier()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
            loss = net(tokens, targets)
        loss.backward()
        optimizer.step()
        if args.ranks > 1:
            dist.barrier()
        if step >= UNTIMED:
            seconds.append(time.perf_counter() - begin)
            cpu_seconds.append(time.process_time() - cpu_begin)
        losses.append(mean_over_ranks(loss, args.ranks))
    return {
        "parameters": parameters,
        "parameters_of_rank": elems(model.parameters()),
        "fused": optimizer.param_groups[0].get("fused", False),
        "ms": 1e3 * statistics.median(seconds),
        "cpu_ms": 1e3 * statistics.median(cpu_seconds),
        "first_loss": losses[0],
        "loss": losses[-1],
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


def run_rank(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if args.ranks > 1:
        dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    times = time_steps(args, rank)
    if rank == 0:
        run = {
            "name": f"pytorch {args.mode}",
            "version": torch.__version__,
            "precision": args.precision,
            "bucket_view": args.bucket_view,
            "compiled": args.compile,
            "attention": "scaled_dot_product_attention" if HAS_SDPA else "in steps",
            "ranks": args.ranks,
            "threads": torch.get_num_threads(),
            "flops": step_flops(),
        }
        print(json.dumps({**run, **times}), flush=True)
    if args.ranks > 1:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["single", "ddp", "zero1", "fsdp2"])
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--bucket-view", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    if args.mode == "single":
        args.ranks = 1
        run_rank(0, args, 0)
        return
    mp.spawn(run_rank, args=(args, free_port()), nprocs=args.ranks)


if __name__ == "__main__":
    main()
