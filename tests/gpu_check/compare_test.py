#!/usr/bin/env python3
"""Tests the comparison of two runs of scripts/gpu_check.sh, and that no other file is taken for one."""

import copy
import json
import os
import unittest
from pathlib import Path

from made_up import ROOT
from verdicts_test import OnAMachine

import compare
import document


def changed(good, change):
    """A document with parts and figures by name to change."""
    new = copy.deepcopy(good)
    parts = {part["name"]: part for part in new["parts"]}
    figures = {name: {figure["name"]: figure for figure in part["figures"]} for name, part in parts.items()}
    change(new, parts, figures)
    return new


class Comparisons(OnAMachine):
    def compared(self, old, new, noise=0.03):
        self.check.page = compare.section(old, new, noise)

    def test_of_a_run_with_an_older_one(self):
        self.call(0, "kernels", "sanitize")
        old = Path(self.folder.name) / "old.json"
        old.write_text((Path(self.folder.name) / "gpu.json").read_text())
        # One figure is slower and misses its bar, one is faster, the others are the same. The comparison does not
        # change the status.
        self.call(3, "--compare", old, "kernels", adamw=3000, product=1.05)
        self.has(r"^## Compared")
        self.has(r"^\| slower \| kernels: AdamW, fp32 gradients \(500000000 parameters\) \| 4000 GB/s \| 3000 GB/s \| 0.750 \|")
        self.has(r"^\| faster \| kernels: c_fc dW / plain cuBLASLt", r"\| 0.986 \| 1.05 \| 1.065 \|")
        self.has(r"^\| the same \| kernels: AdamW, bf16 gradients ")
        self.has(r"^\| met \| NOT met \| kernels: speed of AdamW", "torch.optim")
        self.has("^- sanitize: then only")
        self.has("differs by at most 3 % is the same")
        self.assertIn("| slower | kernels: AdamW, fp32", self.check.output)
        moved = [line.split()[1] for line in self.check.page.splitlines() if line.startswith(("| slower ", "| faster ", "| the same "))]
        self.assertEqual(moved[:3], ["slower", "slower", "faster"])
        # The old document may be the file that the run replaces.
        self.call(0, "--compare", Path(self.folder.name) / "gpu.json", "--noise", "1.5", "kernels", keep=True, adamw=3900)
        self.has(r"^\| faster \| kernels: AdamW, fp32 gradients ", r"3000 GB/s \| 3900 GB/s")
        self.has(r"^\| slower \| kernels: c_fc dW / ")
        self.has("at most 1.5 % is the same")
        # A later call without --compare prints no comparison.
        self.call(0, "--resume", "kernels", keep=True)
        self.has_not("^## Compared")

    def test_other_machines_and_sizes_are_not_compared(self):
        self.call(0, "kernels")
        old = self.check.document()
        self.call(0, "kernels", device="another card")
        self.compared(old, self.check.document())
        self.has("^- kernels: another GPU, then a card, .*, now another card, ")
        self.has_not(r"^\| (the same|faster|slower) ")
        self.call(0, "kernels", vocab=50257)
        self.compared(old, self.check.document())
        self.has("^Of another size, not compared:")
        self.has("^- kernels: wte forward: then 620.5 TFLOP/s at 16384 x 50304 x 768, now 620.5 TFLOP/s at 16384 x 50257 x 768")
        self.has("^- kernels: cross entropy, bf16: then .*vocab 50304, now .*vocab 50257")
        self.has_not(r"^\| .* wte forward")
        self.has(r"^\| the same \| kernels: c_fc forward \(65536 x 3072 x 768\)")

        def unnamed(_, parts, __):
            parts["kernels"]["machine"]["device"] = "no nvidia-smi"
        self.compared(changed(old, unnamed), changed(old, unnamed))
        self.has("^- kernels: neither says which GPU it was on")
        self.has_not(r"^\| the same \| kernels")

    def test_speeds_and_times_have_noise_and_bytes_and_counts_none(self):
        self.call(0, "kernels", "train", "memory", "sanitize")
        old = self.check.document()

        def slower(_, __, figures):
            for part, name, value in (
                    ("train", "GPT-2 on 4 ranks, zero3, a step", 0.2), ("train", "GPT-2 on 4 ranks, ddp, a step", 0.103),
                    ("train", "GPT-2 on one rank, tessera", 971), ("kernels", "AdamW, bf16 gradients", 3870),
                    ("train", "GPT-2 on 4 ranks, zero3, peak", 8), ("memory", "gpt2-large, ddp, unattributed", 1.02),
                    ("memory", "gpt2-large, ddp, measured on the fullest rank", 999), ("sanitize", "memcheck, errors", 2)):
                figures[part][name]["value"] = value
        self.compared(old, changed(old, slower))
        self.has(r"^\| slower \| train: GPT-2 on 4 ranks, zero3, a step", r"\| 0.1 s \| 0.2 s \| 2.000 \|")
        self.has(r"^\| the same \| train: GPT-2 on 4 ranks, ddp, a step")
        self.has(r"^\| the same \| train: GPT-2 on one rank, tessera \(")
        self.has(r"^\| slower \| kernels: AdamW, bf16 gradients \(")
        self.has(r"^\| larger \| train: GPT-2 on 4 ranks, zero3, peak", r"\| 7 bytes \| 8 bytes \|")
        self.has(r"^\| smaller \| memory: gpt2-large, ddp, measured", r"1000 bytes \| 999 bytes")
        self.has(r"^\| the same \| memory: gpt2-large, ddp, unattributed")
        self.has(r"^\| more \| sanitize: memcheck, errors", r"\| 0 errors \| 2 errors \|  \|")
        self.has(r"^Of [0-9]+ figures that both have: 2 slower, 1 larger, 1 smaller, 1 more, [0-9]+ the same\.")
        self.compared(old, changed(old, slower), 0)
        self.has(r"^\| slower \| train: GPT-2 on 4 ranks, ddp, a step")

    def test_what_only_one_has_and_other_machines_are_listed(self):
        self.call(0, "kernels", "train", "memory")
        old = self.check.document()

        def other(new, parts, figures):
            figures["kernels"]["squared norm, bf16"]["name"] = "a | new one"
            new["parts"].remove(parts["train"])
            parts["kernels"]["machine"]["driver"] = "600.1"
            parts["kernels"]["commit"] = "abc"
            parts["memory"]["bars"][0]["verdict"] = "NOT met"
        new = changed(old, other)
        self.compared(old, new)
        self.has(r"^Then only:(\n.*)*^- kernels: squared norm, bf16 \(.*\): 2390 GB/s")
        self.has(r"^Now only:(\n.*)*^- kernels: a \| new one ")
        self.has("^- train: then only")
        self.has(r"^\| kernels \| driver \| something \| 600.1 \|")
        self.has(r"^\| kernels \| commit \| some commit \| abc \|")
        self.has(r"^\| met \| NOT met \| memory: bytes that the library holds")
        self.compared(new, old)
        self.has("^- train: now only")

    def test_stored_documents_of_older_runs_can_be_compared(self):
        for path in (ROOT / "docs/benchmarks").glob("gpu-*.json"):
            old = document.read(path)
            self.compared(old, old)
            self.has(r"^Of [1-9][0-9]+ figures that both have: [0-9]+ the same\.")


# Changes of a good document with four figures of one part, and what is said of them.
BROKEN = [
    ("of version 2", lambda d, p: d.update(version=2)),
    ("version is not a finite number", lambda d, p: d.update(version="1")),
    ('it has no "format": "tessera gpu_check"', lambda d, p: d.update(format=1)),
    ('the document has no "parts"', lambda d, p: d.pop("parts")),
    ("parts is not a list", lambda d, p: d.update(parts={})),
    ("parts[0] is not an object", lambda d, p: d.update(parts=[1])),
    ("parts[1].name is there twice", lambda d, p: d["parts"].append(p)),
    ('parts[0] has no "date"', lambda d, p: p.pop("date")),
    ("commit is not one line of text", lambda d, p: p.update(commit="a\n\n## b")),
    ("machine is not an object", lambda d, p: p.update(machine=[])),
    ("machine.device is not one line", lambda d, p: p["machine"].update(device=None)),
    ("machine has a name that is not one line", lambda d, p: p["machine"].update({"a\nb": ""})),
    ("bars[0].verdict is none of met", lambda d, p: p["bars"][0].update(verdict="fine")),
    ("bars[4].id is there twice", lambda d, p: p["bars"].append(p["bars"][0])),
    ("figures[1].bar is none of", lambda d, p: p["figures"][1].update(bar="nosuch")),
    ("figures[1].verdict is none of met", lambda d, p: p["figures"][1].update(verdict="")),
    ("figures[4] is there twice", lambda d, p: p["figures"].append(p["figures"][0])),
    *(("figures[0].value is not a finite", lambda d, p, value=value: p["figures"][0].update(value=value))
      for value in ("7", True, None, [], 10**400)),
]


class Hostile(OnAMachine):
    def contents(self, good):
        """Files that are no document, and what is said of each."""
        for text, change in BROKEN:
            broken = copy.deepcopy(good)
            change(broken, broken["parts"][0])
            yield text, json.dumps(broken).encode()
        text = json.dumps(good)
        yield "figures[0].value is not a finite", text.replace('"value": 0', '"value": 1e999', 1).encode()
        yield "it is not JSON: NaN is no number", text.replace('"value": 0', '"value": NaN', 1).encode()
        yield "it is not JSON: a number has too many digits", b'{"format": ' + 6000 * b"9" + b"}"
        yield "it is not JSON: ", text[:500].encode()
        yield "it is not JSON: ", b""
        yield 'it has no "format": "tessera gpu_check"', b"[]"
        yield "nested too deeply", 100_000 * b"["
        yield "not text in UTF-8", b"\xff\xfe"
        yield "at most 16777216 are read", 2**24 * b" " + b"{}"

    def test_files_are_refused_with_what_is_wrong(self):
        self.call(0, "sanitize")
        folder = Path(self.folder.name)
        os.mkfifo(folder / "fifo")
        cases = [("No such file", folder / "nosuch"), ("it is not a file", folder), ("it is not a file", folder / "fifo"),
                 ("it is not a file", "/dev/zero"), ("not text", "a\0b")]
        for i, (text, content) in enumerate(self.contents(self.check.document())):
            (folder / str(i)).write_bytes(content)
            cases.append((text, folder / str(i)))
        for text, path in cases:
            with self.subTest(text):
                with self.assertRaises(document.Wrong) as wrong:
                    document.read(path)
                self.assertIn(text, str(wrong.exception))

    def refused(self, text, *words, keep=False):
        """Status 2 and the text, before anything runs or is written."""
        self.call(2, *words, "kernels", keep=keep)
        self.assertIn("error: ", self.check.output)
        self.assertIn(text, self.check.output)
        self.assertEqual(self.machine.calls, [])
        self.assertFalse((Path(self.folder.name) / "work").exists())

    def test_wrong_usage_and_wrong_files_run_nothing(self):
        folder = Path(self.folder.name)
        (folder / "bad.json").write_text("device: a card\n")
        good = str(ROOT / "docs/benchmarks/gpu-2026-11-22.json")
        self.refused("No such file", "--compare", folder / "nosuch.json")
        self.refused("it is not JSON: ", "--compare", folder / "bad.json")
        self.refused("--compare needs a file", "--compare", "")
        self.refused("no percentage", "--compare", good, "--noise", "lots")
        self.refused("--noise is for --compare", "--noise", "2")
        self.refused("'no_such_part' is not a part", "no_such_part")
        self.refused("is not a whole number", "--seconds", "soon")
        self.refused("see scripts/gpu_check.sh --help", "--no-such-option")
        # A file that is no such document is not replaced either.
        (folder / "gpu.json").write_text("device: a card\n")
        self.refused("would be replaced", keep=True)
        self.assertEqual((folder / "gpu.json").read_text(), "device: a card\n")


if __name__ == "__main__":
    unittest.main(defaultTest=["Comparisons", "Hostile"])
