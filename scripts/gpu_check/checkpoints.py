"""Part checkpoint: compares runs that are resumed on the device with uninterrupted ones, and measures how long a step
takes during an asynchronous save."""

import shutil

import steps
from run import median, told

STRATEGIES = ("zero3", "ddp")


def run(part):
    model, batch = steps.gpt2(part), 1 if part.call.emulated else 4
    for strategy in STRATEGIES:
        with part.judging(f"bits_{strategy}"):
            resumed_bits(part, model, batch, strategy)
    with part.judging("asynchronous"):
        asynchronous_cost(part, model, batch)
    if part.failed + part.cut == 0:
        for folder in part.call.work.glob("checkpoint-*"):
            shutil.rmtree(folder)


def saving(part, model, batch, strategy, folder, count, *options):
    """Trains, and saves to `folder` at the end. Files of an earlier call would count as an earlier run."""
    folder = part.call.work / folder
    command = [part.call.tessera, "train", "--device", "cuda", *model.data, *model.options, "--precision", "bf16",
               "--batch", batch, "--ranks", 4, "--strategy", strategy, "--lr-schedule", "constant",
               "--checkpoint", folder, "--steps", count, *options]
    makes = [folder / f"step-{count:08d}/manifest.json"]
    if "--resume" not in options and not part.is_done(command, makes):
        shutil.rmtree(folder, ignore_errors=True)
    return part.keep(5, *command, allowed=(3,), makes=makes)


def resumed_bits(part, model, batch, strategy):
    bar, whole, resumed = f"bits_{strategy}", f"checkpoint-{strategy}-whole", f"checkpoint-{strategy}-resumed"
    for folder, count, options in ((whole, 6, []), (resumed, 3, []), (resumed, 6, ["--resume"])):
        result = saving(part, model, batch, strategy, folder, count, *options).needed()
    difference = part.keep(8, part.call.tessera, "checkpoint", "diff", part.call.work / whole / "step-00000006",
                           part.call.work / resumed / "step-00000006", allowed=(1,))
    if difference.status == 0:
        part.judge(bar, "met", "the same after 6 steps, resumed after 3", result.shown)
    elif difference.status == 1:
        part.judge(bar, "NOT met", f"they differ: {difference.last}", result.shown)
    else:
        part.judge(bar, "not measured", difference.reason, result.shown)


def asynchronous_cost(part, model, batch):
    """A save starts after every fifth step and runs during the next."""
    texts, shape = [], f"{model.words}, batch {batch} each"
    for strategy in STRATEGIES:
        plain = steps.train(part, f"asynchronous-{strategy}-none", model, batch, 20, "--ranks", 4, "--strategy",
                            strategy).needed(f"{strategy}: ")
        log = part.call.work / f"asynchronous-{strategy}-beside.jsonl"
        result = saving(part, model, batch, strategy, f"checkpoint-{strategy}-beside", 20, "--checkpoint-every", 5,
                        "--checkpoint-keep", 1, "--log", log).needed(f"{strategy}: ")
        beside = median([row["seconds"] for row in steps.rows_of(log) if row["step"] in (6, 11, 16)])
        texts.append(f"{strategy}: {told(beside, 'no')} s, without {told(plain.seconds, 'no')} s")
        part.figure(f"GPT-2 on 4 ranks, {strategy}, a step", shape, plain.seconds, "s", "asynchronous")
        part.figure(f"GPT-2 on 4 ranks, {strategy}, a step beside a save", shape, beside, "s", "asynchronous")
    part.judge("asynchronous", "measured", "; ".join(texts), result.shown)
