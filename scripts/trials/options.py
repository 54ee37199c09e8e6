#!/usr/bin/env python3
"""Draws random sets of options: every strategy must train alike, with the planned bytes.

  scripts/trials/options.py --command build/release/tools/tessera --count 200 --seed 1

Draws models, ranks, precisions, optimizers and their options, and compares all strategies. A set
either trains, with planned = peak bytes on every rank and the same losses under every strategy (up to
rounding for hybrid, which adds in another order), or is refused with one error line and status 2.
"""
import json
import math
import sys

from common import Trial, write_text

PRECISIONS = ("fp32", "bf16", "fp16")


def model(draws):
    heads = draws.randint(1, 3)
    return {"--layers": draws.randint(1, 3), "--heads": heads,
            "--hidden": heads * draws.choice((3, 4, 5, 8)), "--seq": draws.randint(3, 20),
            "--vocab": draws.choice((256, 257, 263))}


def parallel(draws):
    ranks = draws.choice((1, 2, 2, 3, 4, 5))
    chosen = {"--ranks": ranks, "--prefetch": draws.randint(0, 2)}
    if draws.random() < 0.3:
        chosen["--prefetch-backward"] = draws.randint(0, 2)
    if draws.random() < 0.3:
        chosen["--reshard"] = draws.choice(("after-forward", "after-backward"))
    if draws.random() < 0.3:
        chosen["--persist"] = draws.choice((1, 16, 64, 1000))
    if draws.random() < 0.3:
        chosen["--threads"] = 2
    if draws.random() < 0.3:
        chosen["--shard-group"] = draws.choice([s for s in range(1, ranks + 1) if ranks % s == 0])
    return chosen


def precision(draws):
    chosen = {}
    if draws.random() < 0.6:
        chosen["--precision"] = draws.choice(PRECISIONS)
        chosen["--gradient-dtype"] = draws.choice(PRECISIONS)
    if draws.random() < 0.3:
        chosen["--norm-dtype"] = draws.choice(PRECISIONS)
    if draws.random() < 0.3:
        chosen["--reduce-dtype"] = draws.choice(("fp32", "bf16"))
    if draws.random() < 0.3:
        chosen["--master-weights"] = draws.choice(("fp32", "remainder"))
    if draws.random() < 0.3:
        chosen["--loss-scale"] = draws.choice(("dynamic", "off", "1024", "0.5"))
    return chosen


def optimizer(draws):
    rule = draws.choice(("adamw", "adamw", "adam", "sgd", "lion"))
    chosen = {"--optimizer": rule, "--lr": draws.choice(("1e-4", "1e-2", "0")),
              "--clip": draws.choice((0, 0.1, 1))}
    if rule == "sgd" and draws.random() < 0.5:
        chosen["--momentum"] = draws.choice((0, 0.5))
    if draws.random() < 0.4:
        chosen["--moments"] = draws.choice(("fp32", "bf16", "int8"))
    if draws.random() < 0.3:
        chosen["--rounding"] = draws.choice(("nearest", "stochastic"))
    if draws.random() < 0.3:
        chosen["--offload"] = draws.choice(
            ("optimizer", "state", "activations", "optimizer,activations", "state,activations"))
        if chosen["--offload"] != "activations" and draws.random() < 0.5:
            chosen["--offload-keep"] = draws.choice(("0.3", "0.9"))
    return chosen


def passes(draws):
    chosen = {"--steps": draws.randint(1, 4), "--batch": draws.randint(1, 3),
              "--seed": draws.randrange(2**40),
              "--accumulate": draws.choice((1, 1, 2, 3)),
              "--accumulate-mode": draws.choice(("every", "deferred"))}
    if draws.random() < 0.3:
        chosen["--recompute"] = draws.choice(("block", "every:2", "none"))
    if draws.random() < 0.3:
        chosen["--dropout"] = draws.choice(("0.1", "0.7"))
    return chosen


def check_bytes(end, strategy):
    for rank in strategy["ranks"]:
        for peak in ("peak_bytes", "host_peak_bytes"):
            if peak in rank:
                end.require(rank[peak] == rank["planned_" + peak],
                            f"{strategy['name']}, rank {rank['rank']}: {peak} {rank[peak]}, "
                            f"planned {rank['planned_' + peak]}")


def alike(base, losses, exact):
    if exact:
        return json.dumps(base) == json.dumps(losses)
    return all(a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=2e-2))
               for a, b in zip(base, losses))


def check_losses(end, strategies):
    base = strategies[0]
    for strategy in strategies[1:]:
        end.require(len(base["losses"]) == len(strategy["losses"]) and
                    alike(base["losses"], strategy["losses"], strategy["name"] != "hybrid"),
                    f"losses of {base['name']} {base['losses']} and of {strategy['name']} "
                    f"{strategy['losses']}")


def main():
    trial = Trial(__doc__, 200)

    def one(draws, folder):
        chosen = {}
        for part in (model, parallel, precision, optimizer, passes):
            chosen.update(part(draws))
        strategies = ["ddp", "dp", "zero1", "zero2", "zero3"]
        if "--shard-group" in chosen:
            strategies.append("hybrid")
        words = [word for pair in chosen.items() for word in pair]
        if draws.random() < 0.3:
            words.append("--no-shuffle")
        out = folder / "out.json"
        end = trial.run(["compare", "--data", write_text(folder / "text", 3000, draws),
                         "--strategies", ",".join(strategies), "--json", out, *words])
        end.require_status(0, 2)
        if end.status == 2:
            end.require(end.out == "" and not out.exists(), "the options were refused after the start")
            return "refused"
        results = json.loads(out.read_text())["strategies"]
        end.require([result["name"] for result in results] == strategies, "not all strategies ran")
        for result in results:
            check_bytes(end, result)
        check_losses(end, results)
        return "trained alike"

    status = trial.run_all(one)
    if trial.ends.get("trained alike", 0) < trial.ends.get("refused", 0):
        print("error: more sets were refused than trained, which proves nothing")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
