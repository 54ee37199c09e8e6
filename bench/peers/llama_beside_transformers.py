#!/usr/bin/env python3
"""A Llama of 20 M parameters on text: transformers' model in PyTorch's own loop beside `tessera train`, from the same weights.

    llama_beside_transformers.py losses | times TESSERA TEXT [--ranks 1|2] [--steps 100] [--rounds 5] [--folder DIR]

Needs torch and transformers 5. TEXT is read as bytes. transformers makes the weights and writes them with its own
save_pretrained; `tessera train --model FOLDER` reads that folder. Both take the same bytes in the same order: AdamW in
fp32, a constant rate, weight decay of matrices, no clipping, one thread a rank.

`losses` prints both curves' largest relative difference. `times` runs both in turn, PyTorch with
scaled_dot_product_attention, uncompiled and compiled (with two ranks under DDP), and prints the median seconds of a
step and the ratios of each round.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

SEQ, BATCH, VOCAB = 128, 4, 256
LR, BETAS, EPS, DECAY = 3e-4, (0.9, 0.95), 1e-8, 0.1
UNTIMED = 3


def config():
    """20.75 M parameters: 11 layers of width 384, 6 heads, 2 of keys."""
    return LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=384,
        intermediate_size=1280,
        num_hidden_layers=11,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=SEQ,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )


def windows(text, step, rank, ranks):
    """The bytes of a rank's step: windows of SEQ + 1 in the order of the text, dealt out in turn."""
    first = step * BATCH * ranks
    rows = [text[(first + i * ranks + rank) * SEQ :][: SEQ + 1] for i in range(BATCH)]
    block = torch.tensor([list(row) for row in rows])
    return block[:, :-1], block[:, 1:]


def train(rank, ranks, folder, text, steps, compiled, results):
    """PyTorch's loop on one rank. Puts losses and seconds into `results` on rank 0."""
    torch.set_num_threads(1)
    net = LlamaForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32)
    model = net
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=results["port"])
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if compiled:
        model = torch.compile(model)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=True)
    losses, seconds = [], []
    for step in range(steps):
        begin = time.perf_counter()
        inputs, targets = windows(text, step, rank, ranks)
        logits = model(input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().double()
        if ranks > 1:
            dist.all_reduce(mean)
            mean /= ranks
        losses.append(mean.item())
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        pathlib.Path(results["file"]).write_text(json.dumps({"losses": losses, "seconds": seconds}))
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def torch_run(folder, text, steps, ranks, compiled):
    """Losses and seconds of a run of PyTorch."""
    with tempfile.NamedTemporaryFile() as file:
        results = {"file": file.name, "port": str(20000 + os.getpid() % 20000)}
        arguments = (ranks, folder, text, steps, compiled, results)
        mp.spawn(train, arguments, nprocs=ranks)
        return json.loads(pathlib.Path(file.name).read_text())


def our_run(tessera, folder, text_path, steps, ranks):
    """Losses and seconds of a run of tessera."""
    with tempfile.TemporaryDirectory() as out:
        log = pathlib.Path(out) / "log"
        words = [tessera, "train", "--model", folder, "--data", text_path, "--ranks", str(ranks), "--strategy", "ddp",
                 "--batch", str(BATCH), "--steps", str(steps), "--lr", str(LR), "--lr-schedule", "constant",
                 "--beta1", str(BETAS[0]), "--beta2", str(BETAS[1]), "--eps", str(EPS), "--weight-decay", str(DECAY),
                 "--clip", "0", "--no-shuffle", "--threads", "1", "--log", str(log)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        steps_of = [line for line in lines if "loss" in line]
        return {"losses": [line["loss"] for line in steps_of], "seconds": [line["seconds"] for line in steps_of]}


def median(run):
    return statistics.median(run["seconds"][UNTIMED:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["losses", "times"])
    parser.add_argument("tessera")
    parser.add_argument("text")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    asked = parser.parse_args()
    folder = asked.folder or tempfile.mkdtemp()
    if not (pathlib.Path(folder) / "config.json").exists():
        torch.manual_seed(1)
        LlamaForCausalLM(config()).save_pretrained(folder)
    text = pathlib.Path(asked.text).read_bytes()
    ours = lambda: our_run(asked.tessera, folder, asked.text, asked.steps, asked.ranks)
    theirs = lambda compiled: torch_run(folder, text, asked.steps, asked.ranks, compiled)
    if asked.what == "losses":
        a, b = ours(), theirs(False)
        worst = max(abs(x - y) / y for x, y in zip(a["losses"], b["losses"], strict=True))
        print(json.dumps({"ranks": asked.ranks, "steps": asked.steps, "first": b["losses"][0], "last": b["losses"][-1],
                          "ours_last": a["losses"][-1], "largest_relative_difference": worst}))
        return 0 if worst <= 2e-5 else 1
    ratios = {"sdpa": [], "compiled": []}
    times = {"ours": [], "sdpa": [], "compiled": []}
    for number in range(asked.rounds):
        order = ["ours", "sdpa", "compiled"] if number % 2 == 0 else ["compiled", "sdpa", "ours"]
        found = {name: median(ours() if name == "ours" else theirs(name == "compiled")) for name in order}
        for name, seconds in found.items():
            times[name].append(seconds)
        for name, all_ratios in ratios.items():
            all_ratios.append(found["ours"] / found[name])
        print(json.dumps({"round": number, **found}), file=sys.stderr)
    print(json.dumps({
        "ranks": asked.ranks,
        "milliseconds": {name: round(1000 * statistics.median(each), 1) for name, each in times.items()},
        "ratios": {name: [round(statistics.median(each), 3), round(min(each), 3), round(max(each), 3)]
                   for name, each in ratios.items()},
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
