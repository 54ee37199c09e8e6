#!/usr/bin/env python3
"""Times Gloo's collectives, through torch.distributed, on processes of one machine.

  gloo_collectives.py [--ranks 2] [--bytes 67108864] [--rounds 10]

Prints one JSON object per collective with the seconds of each round on rank 0 (from a barrier of all
ranks until the last rank has its data). Times a reduce-scatter only if this version of PyTorch has
one over Gloo.
"""

import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def make_collectives(elems, ranks):
    whole = torch.ones(elems)
    shard = torch.ones(elems // ranks)
    parts = list(whole.split(elems // ranks))  # views: nothing is copied afterwards
    collectives = {
        "all_gather": lambda: dist.all_gather(parts, shard),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(shard, whole),
        "all_reduce": lambda: dist.all_reduce(whole),
    }
    return {name: run for name, run in collectives.items() if works(run)}


def works(run):
    try:
        run()
    except RuntimeError:  # raised on every rank, before anything is sent
        return False
    return True


def time_rounds(run, rounds):
    seconds = []
    for round_index in range(rounds + 1):  # the first round touches the memory
        dist.barrier()
        begin = time.perf_counter()
        run()
        dist.barrier()
        if round_index > 0:
            seconds.append(time.perf_counter() - begin)
    return seconds


def run_rank(rank, ranks, elems, rounds, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for name, run in make_collectives(elems, ranks).items():
        seconds = time_rounds(run, rounds)
        if rank == 0:
            run = {"name": f"gloo {name}", "version": torch.__version__, "seconds": seconds}
            print(json.dumps(run), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    elems = args.bytes // 4 // args.ranks * args.ranks
    mp.spawn(run_rank, args=(args.ranks, elems, args.rounds, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
