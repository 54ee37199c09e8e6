#!/usr/bin/env python3
"""Changes inputs while a run reads them: it must succeed or print an error, and never end by a signal.

  scripts/trials/changing_files.py --command build/release/tools/tessera --count 60 --seed 1

Trains, and at a random moment cuts, overwrites, lengthens, replaces or removes the run's text, tokens,
held-out data or weights.
"""
import os
import sys
import time

from common import Trial, write_text

SIZES = ["--layers", 1, "--hidden", 8, "--heads", 2, "--seq", 8]


def cut(draws, path):
    os.truncate(path, draws.choice((0, 1, path.stat().st_size // 2)))


def overwrite(draws, path):
    with open(path, "r+b") as file:
        file.seek(draws.randrange(path.stat().st_size))
        file.write(draws.randbytes(2000))


def lengthen(draws, path):
    with open(path, "ab") as file:
        file.write(draws.randbytes(draws.choice((1, 5000))))


def replace(draws, path):
    other = path.with_suffix(".new")
    other.write_bytes(draws.randbytes(draws.choice((0, 3, 40_000))))
    other.replace(path)


def remove(_, path):
    path.unlink()


CHANGES = (cut, cut, overwrite, lengthen, replace, remove)


def main():
    trial = Trial(__doc__, 60)

    def one(draws, folder):
        text = write_text(folder / "text", 40_000, draws)
        weights = folder / "w" / "model.safetensors"
        inputs = {"--data": text}
        which = draws.choice(("--data", "--tokens", "--eval-data", "--init"))
        if which == "--tokens":
            tokens = folder / "tokens"
            tokens.write_bytes(b"".join(bytes((c, 0)) for c in text.read_bytes()))
            inputs = {"--tokens": tokens}
        if which == "--eval-data":
            inputs[which] = write_text(folder / "held-out", 5000, draws)
        if which == "--init":
            trial.run(["train", *SIZES, "--steps", 0, "--checkpoint", weights.parent]).require_status(0)
            inputs[which] = weights
        arguments = [word for pair in inputs.items() for word in pair]
        if which == "--eval-data":
            arguments += ["--eval-every", 5]
        process = trial.start(["train", *SIZES, "--steps", 1500, "--ranks", 2, *arguments])
        time.sleep(draws.uniform(0, 0.06 if which == "--init" else 0.4))
        draws.choice(CHANGES)(draws, inputs[which])
        end = trial.end_of(process)
        end.require_status(0, 1, 2)
        return "trained" if end.status == 0 else "ended with an error"

    return trial.run_all(one)


if __name__ == "__main__":
    sys.exit(main())
