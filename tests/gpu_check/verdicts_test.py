#!/usr/bin/env python3
"""Tests what scripts/gpu_check.sh makes of results: verdicts, failures, batches, refusals, figures and the status, on a
made-up machine (made_up.py)."""

import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from made_up import ROOT, Check  # finds the script's modules

import main


class OnAMachine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.check = Check(self.folder.name)

    def call(self, status, *words, keep=False, **settings):
        """Calls the script, in a fresh folder unless the last call's is kept, and expects the status."""
        folder = Path(self.folder.name)
        if not keep:
            shutil.rmtree(folder / "work", ignore_errors=True)
            for name in ("gpu.md", "gpu.json", "products.json"):
                (folder / name).unlink(missing_ok=True)
        found = self.check.call(*words, **settings)
        self.assertEqual(found, status, f"status of {words}, {settings}\n{self.check.output}")
        self.machine = self.check.machine

    def has(self, *texts):
        """The page has a line with these patterns in this order."""
        pattern = ".*".join(texts)
        self.assertRegex(self.check.page, re.compile(pattern, re.M), f"no line {pattern}")

    def has_not(self, pattern):
        self.assertIsNone(re.search(pattern, self.check.page, re.M), f"there is {pattern} on\n{self.check.page}")

    def bar(self, verdict, *texts):
        self.has(rf"^\| {verdict} \|", *texts)

    def ran(self, pattern, count):
        self.assertEqual(self.machine.count(pattern), count, f"calls of {pattern}\n" + "\n".join(self.machine.calls))

    def verdicts(self):
        return [line for line in self.check.page.splitlines() if re.match(r"\| (met|NOT met|not measured|measured|refused) ", line)]


# What one call makes of a machine: the parts, its settings, the status, and lines of the page.
ONE_CALL = {
    "missed kernels": ("kernels", dict(adamw_ratio=0.85, product=0.96, adamw=3800, moved=0.79), 3, [
        ("NOT met", "AdamW, fp32", "0.85", "tessera_cuda_bench adamw"), ("NOT met", "torch.optim"),
        ("NOT met", "matrix products", "0.96"), ("NOT met", "squared norms, layer norm backward", "0.79 cross entropy, bf16"),
        ("met", "AdamW, bf16")]),
    "slow offload": ("train", dict(offloaded=0.36, ours_fits=8), 3, [
        ("NOT met", "offload optimizer", "3.6 times: 0.36 s, without 0.1 s")]),
    "a trainer that is wrong": ("test", dict(trainer="0.5", trainer_status=1), 1, [
        ("NOT met", "plain and wrapped", "0.5 of the loss apart")]),
    "other losses": ("test", dict(loss=5.6, bits="different"), 3, [
        ("NOT met", "fp32 losses", "0.1 apart"), ("NOT met", "bit-identical")]),
    "hybrid too far apart": ("test", dict(apart="1.1e-05"), 3, [("NOT met", "bit-identical", "of N = 1 2 4 8 only 1 2")]),
    "bytes that were not planned": ("memory", dict(peak=1001, unattributed=67108864), 3, [
        ("NOT met", "planned", r"ddp of 4 ranks: \[1001\], planned \[1000\]"), ("NOT met", "unattributed")]),
    "a strategy that does not fit": ("memory", dict(does_not_fit=("ddp", "dp")), 0, [
        ("measured", "gpt2-xl", "zero1"), ("met", "planned", "in 8 of 8 runs")]),
    "a decoder with other bytes than planned": ("decoder", dict(peak=1001), 3, [
        ("NOT met", "bytes that the library holds", "ddp: 1001, planned 1000; zero3: 1001, planned 1000"),
        ("measured", "s a step, peak", r"batch 8; ddp: 0.1 s, 0 MiB; zero3: 0.1 s"),
        ("measured", "the same model in PyTorch", "1.25: tessera 1000 tokens/s, PyTorch 800 and 1 MiB")]),
    "a decoder that does not fit": ("decoder", dict(does_not_fit=("ddp,zero3",)), 0, [
        ("not measured", each, "it does not fit") for each in ("bytes that", "s a step, peak", "in PyTorch")]),
    "a decoder without PyTorch": ("decoder", dict(no_torch=True), 0, [
        ("met", "bytes that", "under ddp and zero3"), ("not measured", "in PyTorch", "no python3 with PyTorch 2; tessera 1000")]),
    # The goals beside PyTorch: the fastest run counts, and is named.
    "PyTorch nearly as fast": ("train", dict(theirs=950), 3, [
        ("met", "fits both", "tessera 1000, PyTorch 950"),
        ("NOT met", "at least 1.15 of", "1.053 by a plain step, goal 1.25 not reached; tessera 1000 by a plain step, none by one with"),
        ("NOT met", "at least 1.08 of", "1.053: tessera 1000 tokens/s and 7 bytes by remainders; no figure with recorded products")]),
    "a fast graph": ("train", dict(theirs=850, fast="--graph"), 0, [
        ("met", "at least 1.15 of", "1.529 by a step as one graph, goal 1.25 reached", "--graph --steps 30")]),
    "between the bar and the goal": ("train", dict(theirs=850), 0, [
        ("met", "at least 1.15 of", "1.176 by a plain step, goal 1.25 not reached")]),
    "no run holds less": ("train", dict(heavy="--master-weights"), 3, [
        ("NOT met", "--recompute layer-norm", "tessera 3000000 bytes, PyTorch 2000000"),
        ("NOT met", "at least 1.08 of", "no run holds fewer bytes than PyTorch's 2000000: remainders 3000000; remainders, --recompute layer")]),
    # A run that fails does not keep the others from being judged.
    "killed runs": ("train", dict(killed="--recompute gelu --steps|layer-norm --steps"), 1, [
        ("not measured", "--recompute layer-norm", "it failed, status 137"), ("met", "at least 1.08 of", "by remainders")]),
    "no PyTorch": ("train", dict(no_torch=True), 0, [
        ("not measured", "at least 1.15 of", "no python3 with PyTorch 2; tessera 1000 by a plain step"),
        ("not measured", "at least 1.08 of", "no python3 with PyTorch 2; tessera 1000 tokens/s and 7 bytes by remainders")]),
    # The search finds the largest batches exactly. Both are compared at the largest that fits both.
    "a smaller card": ("train", dict(ours_fits=23, theirs_fits=41, ours=1100, theirs=1000), 0, [
        ("met", "fits both", "both at batch 23"), ("met", "own largest", "tessera 1100 at batch 23, PyTorch 1000 at batch 41")]),
    "a batch of one": ("train", dict(ours_fits=41, theirs_fits=1), 0, [
        ("met", "fits both", r"both at batch 1 "), ("met", "own largest", "tessera 1000 at batch 41, PyTorch 800 at batch 1"),
        ("not measured", "at least 1.15 of", "batch 64 does not fit both; at batch 1 tessera 1000 by a plain step, none"),
        ("not measured", "at least 1.08 of", "PyTorch: it does not fit the card's memory; tessera 1000 tokens/s and 7 bytes by remainders")]),
    # NCCL's limit of one rank per card is no failure; the page has its message.
    "refused by NCCL": ("nccl", dict(nccl_says="Duplicate GPU detected : rank 0 and 1", nccl_never=True), 0, [
        ("refused", "several processes", "Duplicate GPU detected : rank 0 and 1"), ("not measured", "killed")]),
    "accepted in another way": ("nccl", dict(nccl_says="Duplicate GPU detected : rank 0 and 1"), 0, [
        ("met", "several processes", "with NCCL_MULTI_RANK_GPU_ENABLE=1 alone")]),
    "another error of NCCL": ("nccl", dict(nccl_says="unhandled system error"), 1, [("NOT met", "several processes")]),
    "a rank lost without its name": ("nccl", dict(lost_message="something"), 3, [("NOT met", "killed", "0 of 2 named it")]),
    "one GPU": ("multi", {}, 0, [("not measured", each, "one GPU") for each in (
        "bandwidth", "zero3 and hybrid beside ddp", "gathers that run", "channel-priority", "spare", "max-ctas", "windows")]),
    "an old NCCL": ("multi", dict(gpus=3, refuses="--nccl-windows"), 1, [
        ("not measured", "windows", "status 2: error: --nccl-windows: NCCL 2.26.5 is too old"), ("measured", "max-ctas")]),
    "predictions": ("predictions", {}, 0, [
        ("measured", "ms a step; 128.2 before", "100 ms"), ("squared norm, bf16", "2390 GB/s", "2390 GB/s", "1 |"),
        ("--graph", r"100 \| 100 \|"), ("--recompute block", r"100 \| 100 \|"),
        ("--recompute gelu", "this build has no such option")]),
    "a failing test": ("test", dict(failing_test="test_cuda_comm"), 1, [
        ("NOT met", "ranks that are threads", "1 passed, 0 skipped, 1 failed")]),
    # A tool's findings count whatever else it or the program prints; a refusal is no finding.
    "findings": ("sanitize", dict(sanitizer=True), 1, [
        ("NOT met", "memcheck", "status 9; ERROR SUMMARY: 2 errors"), ("NOT met", "racecheck", "status 1; ERROR SUMMARY: 0 errors"),
        ("not measured", "initcheck", "refuses this device: Error: Device not supported"),
        ("NOT met", "synccheck", "status 0; no summary")]),
}


class Verdicts(OnAMachine):
    def test_of_one_call(self):
        for name, (part, settings, status, lines) in ONE_CALL.items():
            with self.subTest(name):
                self.call(status, part, **settings)
                for first, *texts in lines:
                    self.has(rf"^\| {first} \|", *texts)

    def test_all_is_well(self):
        self.call(0, gpus=2)
        for texts in (("AdamW, fp32", r"0.952 \(4000 GB/s, device copy: 4200 GB/s\)"), ("torch.optim", "4000 GB/s, PyTorch's 3900"),
                      ("matrix products", "0.986, the least of 3: c_fc dW"),
                      ("squared norms, layer norm backward", "0.81 squared norm, bf16"),
                      ("largest batch up to 64", "tessera 1000, PyTorch 800, both at batch 64"),
                      ("at least 1.15 of", "1.25 by a plain step, goal 1.25 reached; tessera 1000 by a plain step, 1000 by one with"),
                      ("at least 1.08 of", "1.25: tessera 1000 tokens/s and 7 bytes by remainders; 1000 with recorded products; "
                       "PyTorch 800 and 2000000"),
                      ("offload optimizer", "2 times: 0.2 s, without 0.1 s; by 16 threads a rank"),
                      ("planned", "12 of 12 runs", "tessera compare .*gpt2-large"), ("unattributed", "1048576"),
                      ("killed", "2 of 2 named it"), ("memcheck",),
                      ("bit-identical", "hybrid at most 3.0e-08 apart", "compare .*--ranks 8 --shard-group 4")):
            self.bar("met", *texts)
        self.has(r"^\| zero1 ", "2 MiB")
        self.has("before: SM 1980 MHz, memory 2619 MHz, 400.0 W, 50 C, held by software power cap\\+software thermal slowdown")
        self.has("commit some commit")
        self.has_not(r"^\| (NOT met|refused|not measured) ")
        self.ran("tessera train .*--model gpt2 .*--batch 64", 4)  # a search and three measurements
        # The figures are a fixed list.
        self.assertEqual("\n".join(self.check.figures()), (ROOT / "tests/gpu_check/figures.txt").read_text().strip())
        # A later call without time does not repeat earlier figures.
        self.call(4, keep=True, part_seconds=4)
        self.has_not(r"^\| (met|NOT met|refused|measured) ")
        self.assertEqual(self.check.figures(), [])

    def test_no_failure_in_a_missed_bar(self):
        self.call(3, "kernels", adamw_ratio=0.85)
        self.has_not("Failed")
        self.assertIn("kernels | AdamW, fp32 gradients / device copy | 500000000 parameters | 0.85 | ratio | adamw_fp32 | NOT met",
                      self.check.figures())

    def test_a_crash_is_not_lack_of_memory(self):
        self.call(1, "train", crashes_at=64)
        self.bar("not measured", "fits both", "it failed, status 1 at batch 64")
        self.ran("batch 32", 0)

    def test_killed_or_missing_programs_get_no_verdict(self):
        shutil.rmtree(Path(self.folder.name) / "build/tests")
        self.call(1, "kernels", "nccl", killed="tessera_cuda_bench")
        self.has(r"\*\*Failed:", "status 137", "tessera_cuda_bench adamw")
        self.has(r"\*\*Failed:", "tests/nccl is not in the build that --build names: build it there, or leave --build out")
        self.has_not(r"^\| (met|NOT met) ")

    def test_a_build_without_the_trainer_is_no_failure(self):
        shutil.rmtree(Path(self.folder.name) / "build/cuda_trainer")
        self.call(0, "test")
        self.bar("not measured", "plain and wrapped", "cuda_trainer/cuda_trainer is not in the build that --build names")

    def test_failing_tests_count_once_and_only_cuda_cases_of_kernels_run(self):
        self.call(1, "test", failing_test="test_cuda_comm", skipping_test="test_cuda")
        self.has(r"\*\*1 failed\*\*")
        self.has(r"^- Sizes/Suite.Second/0: no such device")
        self.ran(r"^test_kernels '--gtest_filter=[^ ]*Suite\.\*/cuda' ", 2)
        self.ran("^test_kernels ", 3)

    def test_several_gpus_compare_each_option_with_none(self):
        self.call(0, "multi")
        self.ran("^(tessera|tessera_cuda_bench) ", 0)
        self.call(0, "multi", gpus=4)
        for texts in (("bus bandwidth", "all_gather: 350.2 GB/s of 4 ranks, 268435456 bytes"),
                      ("beside ddp", "ddp: 0.1 s, 7 bytes; zero3: 0.1 s, 7 bytes; hybrid: 0.1 s"),
                      ("gathers that run", "0.700 of their time"),
                      ("channel-priority", "0.1 s, without 0.1 s; all_gather: 350.2"),
                      ("spare-multiprocessors", r"0.1 s, without 0.1 s \|")):
            self.bar("measured", *texts)
        self.ran("train .*--strategy zero3 .*--spare-multiprocessors 8", 4)
        self.ran("train .*--strategy zero3 .*--nccl-windows", 4)
        self.ran("^tessera_cuda_bench nccl --max-ctas 8 ", 4)
        self.ran("--strategy hybrid --shard-group 2 --steps 12", 4)

    def test_recorded_products_and_options_that_save_memory(self):
        # A fast option that is not small does not count.
        self.call(0, "kernels", "train", fast="--products|remainder --steps|--recompute gelu --steps",
                  heavy="remainder --steps|--head-rows")
        self.bar("met", "at least 1.15 of", "1.625 by a step with recorded products, goal", "1000 by a plain step, 1300 by one",
                 "--products")
        self.bar("met", "at least 1.08 of",
                 "1.625: tessera 1300 tokens/s and 7 bytes by remainders, --recompute gelu; 1300 with recorded products")
        self.ran("^tessera_cuda_bench --choose .* gpt2:64 gpt2-xl:8 ", 1)
        self.ran("--model gpt2-xl .*--recompute gelu --products", 1)
        # Another work folder takes the recorded products from beside the page.
        shutil.rmtree(Path(self.folder.name) / "work")
        self.call(0, "train", keep=True)
        self.bar("met", "at least 1.15 of", "1000 by a plain step, 1000 by one with recorded products")

    def test_a_run_without_time_might_have_been_the_fastest(self):
        self.call(3, "kernels", "train", theirs=950, slow=("remainder --products", 40), part_seconds=35)
        self.bar("NOT met", "at least 1.15 of", "1.053 by a plain step")
        self.bar("not measured", "at least 1.08 of",
                 "not all was run: 1.053: tessera 1000 tokens/s and 7 bytes by remainders; no figure with")


class Calls(OnAMachine):
    """What several calls leave to each other."""

    def resumed(self, slow, *words):
        """An interrupted and resumed part gives the results of one run."""
        self.call(0, *words)
        verdicts, figures = self.verdicts(), self.check.figures()
        self.call(4, *words, part_seconds=10, slow=(slow, 6))
        self.has_not(r"^\| NOT met ")
        cut = self.check.page
        self.call(0, "--resume", *words, keep=True)
        self.assertEqual(self.verdicts(), verdicts)
        self.assertEqual(self.check.figures(), figures)
        return cut

    def test_resumed_training(self):
        self.resumed("tessera train .*--device cuda .*--steps (50|30)", "test", "train")

    def test_resumed_memory(self):
        self.check.page = self.resumed("--strategies zero1", "memory") or self.check.page
        self.ran("compare .*gpt2-large .*--strategies dp ", 0)  # it was done
        self.bar("not measured", "planned", "the same in [123] of 12 runs")
        self.bar("not measured", "unattributed", "in [123] of 12 runs")

    def test_a_build_of_other_sources_is_not_done(self):
        folder = Path(self.folder.name)
        call = SimpleNamespace(given_build=False, tessera=folder / "tessera", module=folder / "module")
        source = folder / "src" / "deep" / "a.cpp"
        source.parent.mkdir(parents=True)
        source.write_text("one")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        first = main.Call.fingerprint(call, "build")
        self.assertEqual(main.Call.fingerprint(call, "build"), first)
        (folder / "src" / "__pycache__").mkdir()
        (folder / "src" / "__pycache__" / "a.pyc").write_text("compiled")
        self.assertEqual(main.Call.fingerprint(call, "build"), first)
        changes = (lambda: source.write_text("two"), lambda: (folder / "CMakeLists.txt").write_text("three"),
                   lambda: source.rename(source.with_name("b.cpp")))
        for change in changes:
            before = {part: main.Call.fingerprint(call, part) for part in ("build", "test")}
            change()
            for part, of in before.items():
                self.assertNotEqual(main.Call.fingerprint(call, part), of)

    def test_no_time_at_all(self):
        self.call(4, "kernels", "memory", "nccl", part_seconds=4)
        self.has_not(r"^\| (met|NOT met|refused|measured) |\*\*")

    def test_seconds_limit_all_parts_of_a_call(self):
        self.call(4, "--seconds", "10", "kernels", "sanitize", slow=("tessera_cuda_bench", 8))
        self.bar("met", "AdamW, fp32")
        self.bar("not measured", "memcheck", "no time for it")

    def test_plans_are_compared_with_steps_of_one_device_in_whichever_calls(self):
        self.call(0, "plans")
        self.bar("not measured", "at least 5 within", "no figures of part kernels: run it first")
        self.call(0, "kernels", "plans")
        self.bar("not measured", "at least 5 within", "no steps of parts train, decoder and predictions: run them")
        self.call(0, "kernels", "predictions", "plans")
        self.bar("not measured", "at least 5 within", "fewer than 5 steps",
                 "2 of 2 within 10 %; not planned: predictions: GPT-2 on one rank, --graph")
        # More figures are there: the part runs again.
        self.call(0, "--resume", "train", "plans", keep=True)
        self.bar("met", "at least 5 within", "9 of 10 within 10 %; not: train: --offload state -33.3 %;",
                 "not planned: train: --offload optimizer; predictions: GPT-2 on one rank, --graph")
        self.has(r"^\| train: remainders, --recompute gelu \| gpt2-xl, batch 8 \| 100 \| 100 \| \+0.0 % \|")
        self.has(r"^\| train: --offload optimizer \| gpt2-large, batch 8 \| 200 \| none: error: --time cannot plan")
        self.call(0, "--resume", "train", "plans", keep=True)
        self.ran("^tessera ", 0)
        # Nine of ten are not enough if the step without options is not among them.
        self.call(3, "plans", keep=True, planned_gpt2=0.05)
        self.bar("NOT met", "at least 5 within", "8 of 10 within 10 %; not: train: GPT-2 on one rank -50.0 %")
        # Other recorded products: their steps are measured again.
        (Path(self.folder.name) / "work/products.json").write_text('{"other": 1}')
        self.call(0, "--resume", "train", keep=True)
        self.assertGreater(self.machine.count("^tessera train .*--products"), 0)
        self.call(3, "plans", keep=True, planned=0.12, planned_gpt2=0.05)
        self.bar("NOT met", "at least 5 within", "0 of 10 within 10 %; not: ", r"train: remainders \+20.0 %; ")
        self.call(0, "plans", keep=True, no_profile=True)
        self.bar("not measured", "at least 5 within",
                 "no profile: it failed, status 2: error: --from WORK/measured.json: the samples have no matmul_tn")
        self.call(0, "kernels", "plans", keep=True, device="another card")
        self.bar("not measured", "at least 5 within",
                 "part train is of another device or commit than part kernels: some commit, a card")

    def test_a_tool_that_hangs_does_not_affect_the_others(self):
        self.call(4, "sanitize", part_seconds=14, hangs="memcheck")
        self.bar("not measured", "memcheck", "no time for it, or for its end: [23] s")
        self.bar("met", "racecheck")
        self.ran(r"gtest_filter=.*-\*LongSequence\*", 4)
        self.call(0, "--resume", "sanitize", keep=True)
        self.bar("met", "memcheck")
        self.ran("compute-sanitizer", 1)

    def test_the_next_call_runs_only_what_had_no_time(self):
        self.call(0, "kernels")
        self.call(4, "train", keep=True, part_seconds=4)
        self.bar("not measured", "fits both", "no time")
        self.bar("met", "AdamW, fp32")
        self.call(0, "--resume", "kernels", "train", keep=True)
        self.ran("tessera_cuda_bench", 0)
        self.bar("met", "fits both")
        # A run on another machine keeps the page and its figures.
        before = self.check.figures()
        shutil.rmtree(Path(self.folder.name) / "work")
        self.call(0, "sanitize", keep=True, device="another card")
        self.bar("met", "fits both")
        self.has(r"^\$ BUILD/bench/cuda/tessera_cuda_bench adamw")
        self.assertEqual([each for each in self.check.figures() if not each.startswith("sanitize")], before)
        devices = [part["machine"]["device"] for part in self.check.document()["parts"]]
        self.assertEqual([device.split(",")[0] for device in devices], ["a card", "a card", "another card"])

    def test_samples_are_kept_for_a_profile(self):
        self.call(0, "kernels", "multi", gpus=2)
        samples = {part["name"]: [one["name"] for one in part["samples"]] for part in self.check.document()["parts"]}
        self.assertIn("AdamW, fp32 gradients", samples["kernels"])
        self.assertIn("all_reduce, a call", samples["multi"])

    def test_products_are_recorded_beside_the_page(self):
        self.call(0, "kernels")
        self.assertTrue((Path(self.folder.name) / "products.json").exists())

    def test_products_of_an_earlier_run_are_not_used_if_recording_is_cut_short(self):
        self.call(0, "kernels")
        self.call(4, "kernels", keep=True, slow=("--choose", 60), part_seconds=30)
        self.call(0, "train", keep=True)
        self.bar("met", "at least 1.15 of", "1000 by a plain step, none by one with recorded products")

    def test_an_error_of_the_script_ends_only_its_part(self):
        self.call(1, "train", "sanitize", unwritten_step=True)
        self.has("Failed:.* an error of this script")
        self.has("^KeyError: 'seconds'")
        self.bar("not measured", "fits both", "the part ended before it")
        self.bar("met", "memcheck")


if __name__ == "__main__":
    unittest.main()
