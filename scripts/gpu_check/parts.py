"""What scripts/gpu_check.sh runs and judges: its parts in their order, and the bars of each."""

from typing import NamedTuple


class About(NamedTuple):
    title: str
    seconds: int  # estimated, for 16 cores and a large card
    what: str
    bars: dict


STRATEGIES = ("dp", "ddp", "zero1", "zero2", "zero3", "hybrid")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
RESUMED = "4 ranks: a run that is resumed on the device ends with the bytes of the uninterrupted one"

PARTS = {
    "build": About("Build", 240, "the module and the programs, with nvcc, for the card that is found", {
        "device": "the module is built for the card and can use it",
    }),
    "test": About("Tests", 200, "every CUDA test on the real module; losses compared with the processor's", {
        "kernels": "every CUDA kernel against its reference, at odd sizes, misaligned, poisoned",
        "device": "its streams, events, graphs, copies and errors, and what else only a CUDA device has",
        "comm": "ranks that are threads on one device: what every communicator must do",
        "parity": "strategies bit-identical, N = 1, 2, 4, 8; a step as one graph has the same bits",
        "command": "the command on a device: losses, plans = bytes held, ledger",
        "losses": "fp32 losses on the device within 1e-4 of the processor's, 50 steps",
        "trainer": "a CUDA trainer as people write them, plain and wrapped: the same losses, bytes as planned",
        "bits": "losses of all strategies bit-identical, of hybrid in two groups to 1e-5, 'local' on one device, "
                "N = 1, 2, 4, 8",
    }),
    "kernels": About("Kernels", 235, "kernels, those of Llama, Qwen and Mistral too, compared with a copy on the device "
                     "and plain cuBLASLt; AdamW with PyTorch's; records cuBLASLt's fastest algorithms for gpt2 and gpt2-xl in products.json "
                     "beside the page, about 35 s each", {
        "adamw_fp32": "speed of AdamW, fp32 gradients, 500 M parameters: at least 0.90 of a device copy's",
        "adamw_bf16": "speed of AdamW, bf16 gradients, 500 M parameters: at least 0.90 of a device copy's",
        "adamw_torch": "speed of AdamW, fp32 gradients: at least that of torch.optim.AdamW(fused=True)",
        "products": "speed of matrix products: at least 0.97 of plain cuBLASLt's",
        "moving": "speed of casts, squared norms, layer norm backward and cross entropy: at least 0.80 of a "
                  "device copy's",
    }),
    "train": About("Training", 440, "GPT-2 124M in bf16 compared with PyTorch; gpt2-xl with options that save "
                   "memory, compared with PyTorch; gpt2-large with offload; zero3 with ddp, 4 ranks on the card", {
        "same_batch": "speed of GPT-2 124M, bf16, seq 1024: at least PyTorch's tokens/s at the largest batch up to "
                      "64 that fits both",
        "own_batch": "speed of the same, each at its own largest batch: at least PyTorch's tokens/s",
        "ahead": "speed of GPT-2 124M, vocabulary 50257, bf16, batch 64: at least 1.15 of torch.compile's tokens/s "
                 "in this run (goal 1.25)",
        "zero3": "zero3, hybrid in two groups and ddp on 4 ranks that share the card: peak bytes a rank, s a step",
        "offload": "gpt2-large, bf16, batch 8, --offload optimizer: a step at most 3.5 times the one without",
        "kept": "gpt2-xl, bf16, batch 8, --master-weights remainder --recompute layer-norm: at most the bytes of "
                "PyTorch's max_memory_allocated",
        "ahead_xl": "gpt2-xl, bf16, batch 8, remainders and any option that saves memory: at least 1.08 of "
                    "PyTorch's tokens/s with fewer bytes",
    }),
    "decoder": About("Qwen 3", 90, "qwen3-0.6b in bf16 on one rank under ddp and zero3: planned and measured bytes, a "
                     "step, compared with PyTorch", {
        "planned": "qwen3-0.6b, bf16, batch 8, ddp and zero3 on one rank: bytes that the library holds = planned",
        "step": "the same: s a step, peak bytes",
        "beside": "the same model in PyTorch: tessera's tokens/s beside its, and its max_memory_allocated",
    }),
    "memory": About("Memory", 300, "gpt2-large and gpt2-xl under every strategy: planned, measured, PyTorch DDP's", {
        "planned": "bytes that the library holds on the device = planned, every rank, every strategy that ran",
        "unattributed": "the ledger's unattributed row under 64 MiB",
        "large": "gpt2-large, 4 ranks, every strategy: peak bytes a rank, planned, measured, PyTorch DDP's",
        "xl": "gpt2-xl, 8 ranks, those that fit: peak bytes a rank, planned, measured, PyTorch DDP's",
    }),
    "checkpoint": About("Checkpoints", 120, "resumed runs compared with uninterrupted ones; a step during a save", {
        "bits_zero3": f"zero3, {RESUMED}",
        "bits_ddp": f"ddp, {RESUMED}",
        "asynchronous": "zero3 and ddp, 4 ranks: s a step beside an asynchronous save, and without one",
    }),
    "nccl": About("NCCL", 400, "jobs of one process and of several on the card, their tests, and a process killed", {
        "one": "NCCL, a job of one process: training, what every communicator must do, parity of strategies",
        "several": "NCCL, several processes on one card, each with an NCCL_HOSTID of its own",
        "suites": "NCCL, several processes: what every communicator must do, parity, faults",
        "lost": "NCCL, one of three processes killed: the others leave within 10 s with its name",
    }),
    "multi": About("Several GPUs", 400, "2 and more GPUs: bandwidth of collectives, zero3 and hybrid compared with "
                   "ddp, hidden gathers", {
        "bandwidth": "collectives over NCCL between GPUs: bus bandwidth by nccl-tests' formula",
        "sharded": "zero3 and hybrid beside ddp, a GPU a rank: s a step, peak bytes a rank",
        "hidden": "share of zero3's gathers that run beside computation",
        "priority": "--channel-priority high beside usual: s a step of zero3",
        "spare": "--spare-multiprocessors 8 beside none: s a step of zero3",
        "ctas": "--nccl-max-ctas 8 beside NCCL's choice: s a step of zero3, bus bandwidth",
        "windows": "--nccl-windows beside registered buffers: s a step of zero3, bus bandwidth",
    }),
    "predictions": About("Predictions", 150, "figures compared with those before a change; options switched on and "
                         "off", {
        "before": "figures of 2026-11-22 beside those of now",
        "step": "GPT-2 124M, 50304 rows, bf16, batch 64: ms a step; 128.2 before",
        "options": "a step with options that change it, beside one without",
    }),
    "plans": About("Planned steps", 10, "steps that parts train, decoder and predictions measured, compared with plans by a "
                   "profile of the samples of part kernels; uses no GPU", {
        "plans": "steps that tessera plan --time plans with the figures of part kernels: at least 5 within 10 % of "
                 "the measured ones, and GPT-2's without options",
    }),
    "sanitize": About("compute-sanitizer", 400, "compute-sanitizer on the tests of kernels", {
        tool: f"compute-sanitizer's {tool} finds nothing" for tool in SANITIZERS
    }),
}
