#!/usr/bin/env python3
"""Draws budgets: what `plan --budget` proposes must run within them, and "needs the least" be true.

  scripts/trials/plans.py --command build/release/tools/tessera --count 200 --seed 1

Draws a model, ranks, precision and budget. A proposal is run as it was printed, and must hold what it
planned, which the budget allows. Where nothing fits, no choice that the search made may need less than
its least choice: random neighbours of that choice are planned beside it.
"""
import json
import shlex
import sys

from common import Trial, write_text

KIB = 1024


def model(draws):
    heads = draws.randint(1, 4)
    return {"--layers": draws.randint(1, 4), "--heads": heads,
            "--hidden": heads * draws.choice((4, 8, 16)), "--seq": draws.choice((8, 16, 24)),
            "--vocab": draws.choice((256, 257, 300))}


def job(draws):
    chosen = {"--ranks": draws.choice((1, 2, 3, 4, 6)), "--batch": draws.randint(1, 3),
              "--accumulate": draws.choice((1, 1, 2))}
    if draws.random() < 0.4:
        chosen["--precision"] = draws.choice(("bf16", "fp16"))
    if draws.random() < 0.3:
        chosen["--offload"] = draws.choice(("none", "optimizer", "state", "activations"))
        if chosen["--offload"] == "activations":
            chosen["--recompute"] = "block"
    if draws.random() < 0.2:
        chosen["--dropout"] = "0.1"
    if draws.random() < 0.3:
        chosen["--optimizer"] = draws.choice(("adam", "sgd", "lion"))
    return chosen


def words_of(chosen):
    return [str(word) for pair in chosen.items() for word in pair]


def main():
    trial = Trial(__doc__, 200)

    def peak_in(path):
        """The highest peak of the strategy that was planned."""
        plan = json.loads(path.read_text())
        return max(rank["peak_bytes"] for rank in plan["strategies"][0]["ranks"])

    def run_proposal(command, folder, draws, budget):
        words = shlex.split(command)
        text = write_text(folder / "text", 6000, draws)
        words = [text if word == "PATH" else word for word in words[words.index("train"):]]
        log = folder / "log"
        ran = trial.run([*words, "--steps", 2, "--log", log])
        ran.require_status(0)
        for line in map(json.loads, log.read_text().splitlines()):
            ran.require(line["peak_bytes"] == line["planned_peak_bytes"], "the plan was not held")
            ran.require(max(line["peak_bytes"]) <= budget, f"the budget is {budget} bytes")

    def check_least(least, chosen, folder, draws):
        """Plans random choices of the search beside its least."""
        samples = chosen["--batch"] * chosen["--accumulate"]
        for _ in range(6):
            batch = draws.choice([size for size in range(1, samples + 1) if samples % size == 0])
            other = {**chosen, "--batch": batch, "--accumulate": samples // batch,
                     "--strategy": draws.choice(("ddp", "zero1", "zero2", "zero3"))}
            if "--recompute" not in chosen:
                other["--recompute"] = draws.choice(("none", "gelu", "layer-norm", "block"))
            path = folder / "other.json"
            end = trial.run(["plan", *words_of(other), "--json", path])
            end.require_status(0, 2)
            end.require(end.status == 2 or peak_in(path) >= least,
                        f"it needs less than {least} bytes")

    def one(draws, folder):
        chosen = {**model(draws), **job(draws)}
        budget = draws.choice((16, 64, 200, 400, 800, 1600, 4000)) * KIB
        out = folder / "plan.json"
        end = trial.run(["plan", *words_of(chosen), "--budget", budget, "--json", out])
        end.require_status(0, 2, 3)
        if end.status == 2:
            end.require("pipe" not in end.err, "a mesh that nobody typed was refused")
            return "refused"
        if end.status == 0:
            run_proposal(json.loads(out.read_text())["search"]["command"], folder, draws, budget)
            return "ran within the budget"
        check_least(peak_in(out), chosen, folder, draws)
        return "nothing fits"

    status = trial.run_all(one)
    if trial.options.only is None and trial.options.count >= 20 and not (
            trial.ends.get("ran within the budget", 0) and trial.ends.get("nothing fits", 0)):
        print("error: the budgets were all too large, or all too small, which proves nothing")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
