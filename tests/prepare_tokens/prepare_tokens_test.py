#!/usr/bin/env python3
"""Tests scripts/prepare_tokens.py, and its files in `tessera`.

  prepare_tokens_test.py COMMAND    the path of `tessera`

Without Python's package `tokenizers` only what does not need it is tested; the status is then 77.
"""

import array
import contextlib
import importlib.util
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "prepare_tokens.py"
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import prepare_tokens  # noqa: E402

HAVE_TOKENIZERS = importlib.util.find_spec("tokenizers") is not None
NEEDS_TOKENIZERS = "Python's package `tokenizers` is missing (python3 -m pip install tokenizers)"
TEXT = "the tile of a mosaic is set beside the others\nand each of them is small\n\nyes, it is.\n"
END = "<|endoftext|>"
COMMAND = None


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tessera-")
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return Path(self.folder.name) / name

    def write(self, name, text):
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def names(self):
        return sorted(each.name for each in Path(self.folder.name).iterdir())

    def run_script(self, *arguments, given="", python=(), **started):
        return subprocess.run([sys.executable, *python, "-B", SCRIPT, *map(str, arguments)], input=given,
                              capture_output=True, encoding="utf-8", errors="surrogateescape", check=False, **started)

    def refused(self, *arguments, words, python=(), given="", **started):
        done = self.run_script(*arguments, python=python, given=given, **started)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, "^(usage|error): ")
        for word in words:
            self.assertIn(word, done.stderr)


class WithoutTheTokenizer(Folder):
    def test_a_missing_package_is_named_with_the_command_that_installs_it(self):
        text = self.write("text.txt", TEXT)
        # -S: without the folders that packages are installed to.
        self.refused("--tokenizer", "t.json", "--output", self.path("o"), text, python=("-S",),
                     words=["`tokenizers`", f"{sys.executable} -m pip install tokenizers"])

    def test_options_that_do_not_go_together_are_refused(self):
        text = self.write("text.txt", TEXT)
        lines = self.write("d.jsonl", "{}\n")
        self.write("empty/.hidden", "no")
        self.path("link").symlink_to("empty")
        self.path("loop").symlink_to("loop")
        self.path("null").symlink_to("/dev/null")
        os.mkfifo(self.path("pipe"))
        before = self.names()
        out = ["--output", self.path("o.bin")]
        pairs = ["--prompt-field", "a", "--answer-field", "b", lines]
        held_out = ["--eval-output", self.path("e.bin"), "--eval-fraction", "0.5"]
        for arguments, words in [
                ([], ["--output FILE", "--encode-prompt", "--decode"]),
                ([*out, "--decode", text], ["one of"]),
                (["--decode", text], ["no effect"]),
                (out, ["no PATH"]),
                ([*out, "--eval-fraction", "0.5", text], ["--eval-output", "give both"]),
                ([*out, "--eval-output", "e", "--eval-fraction", "1", text], ["--eval-fraction is 1.0"]),
                ([*out, "--eval-output", "e", "--eval-fraction", "nan", text], ["--eval-fraction is nan"]),
                ([*out, "--eval-output", self.path("o.bin"), "--eval-fraction", "0.1", text], ["are both"]),
                ([*out, "--prompt-field", "a", lines], ["--answer-field"]),
                ([*out, "--prompt-field", "a", "--answer-field", "b", "--text-field", "c", lines], ["combined"]),
                ([*out, lines], ["d.jsonl", "--text-field"]),
                ([*out, self.path("none")], ["none", "no such file"]),
                ([*out, self.path("empty")], ["empty", "no text files"]),
                (["--output", self.path("empty/o"), "--eval-output", self.path("link/o"), "--eval-fraction", "0.1",
                  text], ["are both", "empty/o"]),
                *[(["--output", name, "--overwrite", text], ["is not a regular file"])
                  for name in ("/dev/null", "", *map(self.path, ("empty", "link", "loop", "null", "pipe")))],
                ([*out, "--eval-output", "/dev/null", "--eval-fraction", "0.1", text], ["is not a regular file"]),
                (["--output", text, text], ["text.txt exists", "--overwrite"]),
                (["--output", text, "--overwrite", text], ["an input and an output"]),
                ([*out, "--mask-output", "m", text], ["--mask-output: ", "all ones", "--prompt-field", "leave"]),
                ([*out, "--mask-output", "m", "--text-field", "a", lines], ["all ones"]),
                ([*out, *held_out, "--eval-mask-output", "m", text], ["--eval-mask-output: ", "all ones"]),
                ([*out, "--mask-output", "m.npy", *pairs], ["--mask-output: m.npy", "no header"]),
                ([*out, *held_out, "--mask-output", "m", *pairs], ["need --eval-mask-output FILE"]),
                ([*out, *held_out, "--documents-output", "d.npy", text], ["need --eval-documents-output FILE"]),
                ([*out, "--eval-mask-output", "m", *pairs], ["--eval-mask-output has no effect", "--eval-output"]),
                ([*out, "--eval-documents-output", "d.npy", text], ["--eval-documents-output has no effect"]),
                (["--decode", "--mask-output", "m"], ["--mask-output has no effect without --output"]),
                (["--decode", "--documents-output", "d.npy"], ["--documents-output has no effect"]),
                ([*out, "--documents-output", "d.bin", text], ["d.bin", "ends in .npy"]),
                ([*out, *held_out, "--documents-output", "d.npy", "--eval-documents-output", "e", text],
                 ["--eval-documents-output: e", "ends in .npy"]),
                ([*out, "--mask-output", self.path("o.bin"), *pairs], ["--output and --mask-output are both"]),
                ([*out, "--mask-output", text, *pairs], ["text.txt exists", "--overwrite"]),
                ([*out, "--mask-output", lines, "--overwrite", *pairs], ["an input and an output"])]:
            with self.subTest(arguments=arguments):
                self.refused("--tokenizer", "t.json", *arguments, words=words)
        self.assertEqual(self.names(), before)

    def test_a_long_text_is_cut_where_no_token_can_cross(self):
        for text, cut in [("one\ntwo\nthree", 8), ("one\ntwo\n", 4), ("one\n\ntwo\nthree\n", 9), ("one\n two", 3),
                          ("one \ntwo", 3), ("one\r\ntwo\r", 3), ("one\r\n\r\ntwo", 3), ("one.\r\ntwo", 0),
                          ("one two.\r\nthree", 3), ("one two.\n\nthree", 3), ("one.\n\ntwo", 0), ("one.\n/two", 0),
                          ("one  two\t\tthree", 3), ("one\t\ttwo", 0), ("one\n  \n two", 3), ("\none", 0), ("", 0),
                          ("\n", 0), ("\n\n", 0), ("  ", 0), ("one", 0)]:
            self.assertEqual(prepare_tokens.cut_of(text), cut, repr(text))


@unittest.skipUnless(HAVE_TOKENIZERS, NEEDS_TOKENIZERS)
class WithATokenizer(Folder):
    def setUp(self):
        super().setUp()
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        made.train_from_iterator([TEXT], trainers.BpeTrainer(
            vocab_size=300, special_tokens=[END], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        made.enable_truncation(4)  # must not cut a document
        made.enable_padding(length=64)
        self.tokenizer = self.path("tokenizer.json")
        made.save(str(self.tokenizer))
        made.no_truncation()
        made.no_padding()
        self.made = made
        self.end = made.token_to_id(END)

    def ids(self, text):
        return self.made.encode(text, add_special_tokens=False).ids

    def prepare(self, *arguments):
        done = self.run_script("--tokenizer", self.tokenizer, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def tokens(self, path, typecode="H"):
        """The ids of a token file, whose header must fit."""
        data = path.read_bytes()
        values = array.array(typecode)
        if path.suffix == ".npy":
            self.assertEqual(data[:10], b"\x93NUMPY\x01\x00\x76\x00")
            fields = eval(data[10:128])  # as numpy writes it
            self.assertEqual(set(fields), {"descr", "fortran_order", "shape"})
            self.assertEqual(fields["descr"], f"<{'iu'[typecode.isupper()]}{values.itemsize}")
            data, count = data[128:], fields["shape"][0]
        else:
            header = array.array("i", data[:1024])
            self.assertEqual(list(header[:2]), [20240520, 1] if values.itemsize == 2 else [20240801, 7])
            self.assertEqual(list(header[3:]), [0] * 253)
            data, count = data[1024:], header[2]
        values.frombytes(data)
        self.assertEqual(len(values), count)
        return list(values)

    def test_text_files_and_folders_are_documents_in_order(self):
        one = self.write("one.txt", TEXT)
        for name, text in [("b", "bee"), ("a", "a tile\r\n"), ("skipped.dat", "no"), (".h", "no"), ("empty", ""),
                           ("sub/in", "no")]:
            self.write("folder/" + name, text)
        expected = [*self.ids(TEXT), self.end, *self.ids("a tile\r\n"), self.end, *self.ids("bee"), self.end]
        for name in ("o.bin", "o.npy"):
            said = self.prepare("--output", self.path(name), one, self.path("folder"))
            self.assertEqual(self.tokens(self.path(name)), expected)
            self.assertIn(f"{len(expected)} tokens of 3 documents, uint16; train with --vocab 300", said)
        self.prepare(one, "--output", self.path("named"), "--format", "npy", self.path("folder/b"))
        self.assertEqual(self.path("named").read_bytes()[:6], b"\x93NUMPY")
        self.assertEqual([name for name in self.names() if "part" in name], [])

    def test_fields_of_json_lines_are_documents(self):
        pairs = [("the tile?", " yes"), ("", "it is \N{GREEK SMALL LETTER PI}."), ("of a mosaic", "")]
        lines = "\n\n".join(json.dumps({"q": q, "a": a, "other": 1}) for q, a in pairs) + "\n"
        path = self.write("in/pairs.jsonl", lines)
        self.write("in/readme.txt", "no JSON")
        out = self.path("o.bin")
        self.prepare("--output", out, "--prompt-field", "q", "--answer-field", "a", path.parent)
        self.assertEqual(self.tokens(out), sum(([*self.ids(q), *self.ids(a), self.end] for q, a in pairs), []))
        self.prepare("--output", out, "--overwrite", "--text-field", "a", path)
        self.assertEqual(self.tokens(out), sum(([*self.ids(a), self.end] for _, a in pairs), []))

    PAIRS = [("", ""), ("the tile?", " yes"), ("", "it is."), ("", ""), ("of a tile", ""), ("small", " set"), ("", "")]

    def test_a_mask_marks_answers_and_positions_mark_documents(self):
        lines = self.write("p.jsonl", "".join(json.dumps({"q": q, "a": a}) + "\n" for q, a in self.PAIRS))
        names = [self.path(name) for name in ("o.bin", "o.mask", "o.starts.npy")]
        options = [each for pair in zip(("--output", "--mask-output", "--documents-output"), names) for each in pair]
        for separator, ends in [(["--separator", "a"], [self.made.token_to_id("a")]), (["--separator", ""], [])]:
            tokens, mask, starts = [], [], []
            for prompt, answer in self.PAIRS:
                prompt, answer = self.ids(prompt), [*self.ids(answer), *ends]
                starts += [len(tokens)] if prompt or answer else []  # without a separator an empty one has no token
                tokens += prompt + answer
                mask += [0] * len(prompt) + [1] * len(answer)
            said = self.prepare("--overwrite", "--prompt-field", "q", "--answer-field", "a", *options, *separator,
                                lines)
            self.assertEqual(self.tokens(names[0]), tokens)
            self.assertEqual(list(names[1].read_bytes()), mask)
            self.assertEqual(self.tokens(names[2], "q"), starts)
            self.assertEqual(len(starts), 7 if ends else 4)
            self.assertEqual(said.splitlines(), [
                f"{names[0]}: {len(tokens)} tokens of 7 documents, uint16; train with --vocab 300 or more",
                f"{names[1]}: {sum(mask)} of {len(mask)} tokens are targets; train with --loss-mask {names[1]}",
                f"{names[2]}: positions of {len(starts)} documents; train with --pack {names[2]} to pack them"])

    def test_held_out_documents_have_a_mask_and_positions_of_their_own(self):
        lines = self.write("p.jsonl", "".join(json.dumps({"q": "tile" * (i % 3), "a": f"{i}"}) + "\n"
                                              for i in range(60)))
        said = self.prepare("--prompt-field", "q", "--answer-field", "a", *self.six_outputs(), lines)
        for name, prefix in [("o", "--"), ("e", "--eval-")]:
            tokens, mask = self.tokens(self.path(name + ".bin")), self.path(name + ".mask").read_bytes()
            starts = self.tokens(self.path(name + ".starts.npy"), "q")
            ends = [place + 1 for place, token in enumerate(tokens) if token == self.end]
            self.assertEqual(starts, [0, *ends][:-1])
            self.assertEqual(ends[-1], len(mask))
            answers = [token for token, counts in zip(tokens, mask) if counts]
            texts = self.made.decode(answers, skip_special_tokens=False).split(END)[:-1]
            prompts = self.made.decode([token for token, counts in zip(tokens, mask) if not counts])
            self.assertEqual(len(texts), len(starts))
            self.assertEqual(prompts, "tile" * sum(int(text) % 3 for text in texts))
            self.assertIn(f"train with {prefix}loss-mask {self.path(name)}.mask\n", said)
            self.assertIn(f"train with {prefix}pack {self.path(name)}.starts.npy to", said)

    def test_positions_are_those_of_text_files_too(self):
        for name, text in [("a", TEXT * 2000), ("b", "\ufeff"), ("c", "bee")]:  # pieces, no text, one
            self.write("folder/" + name, text)
        out, starts = self.path("o.npy"), self.path("s.npy")
        for separator, more in [([], 1), (["--separator", ""], 0)]:
            self.prepare("--overwrite", "--output", out, "--documents-output", starts, *separator, self.path("folder"))
            last = len(self.tokens(out)) - len(self.ids("bee")) - more
            self.assertEqual(self.tokens(starts, "q"), [0, last - 1, last] if more else [0, last])

    def test_the_separator_is_found_or_named_or_left_out(self):
        text = self.write("t.txt", "yes")
        out = self.path("o.bin")
        said = self.prepare("--output", out, "--separator", "", text)
        self.assertEqual(self.tokens(out), self.ids("yes"))
        self.assertNotIn("--pack", said)
        letter = self.made.token_to_id("a")
        said = self.prepare("--output", out, "--overwrite", "--separator", "a", text)
        self.assertEqual(self.tokens(out), [*self.ids("yes"), letter])
        self.assertTrue(said.endswith(f"\nseparator {letter} ends each document; train with --pack {letter} to pack "
                                      "them\n"), said)
        self.refused("--tokenizer", self.tokenizer, "--output", self.path("n"), "--separator", "<none>", text,
                     words=["no token '<none>'", f"special tokens are {END}"])
        document = json.loads(self.tokenizer.read_text().replace(END, "<stop>"))
        other = self.write("other.json", json.dumps(document))
        self.refused("--tokenizer", other, "--output", self.path("n"), text,
                     words=["--separator TOKEN", "special tokens are <stop>"])

    def test_held_out_documents_are_drawn_by_the_seed(self):
        path = self.write("d.jsonl", "".join(json.dumps({"t": str(i)}) + "\n" for i in range(400)))
        def split(seed):
            train, held = self.path("train.bin"), self.path("held.npy")
            self.prepare("--output", train, "--eval-output", held, "--eval-fraction", "0.25", "--seed", seed,
                         "--text-field", "t", "--overwrite", path)
            return [self.made.decode(self.tokens(each), skip_special_tokens=False).split(END)[:-1]
                    for each in (train, held)]
        train, held = split(1)
        self.assertEqual(sorted(map(int, train + held)), list(range(400)))
        self.assertEqual([train, held], [sorted(train, key=int), sorted(held, key=int)])
        self.assertTrue(70 <= len(held) <= 130, len(held))
        self.assertEqual(split(1), [train, held])
        self.assertNotEqual(split(2), [train, held])

    def test_a_refused_input_leaves_no_file(self):
        self.write("kept.bin", "kept")
        before = self.names()
        for name, content, fields, words in [
                ("latin.txt", b"caf\xe9 au lait", [], ["latin.txt is not UTF-8 at byte 3"]),
                ("long.txt", b"\xef\xbb\xbf" + b"long " * 20000 + b"\xe9.", [], ["not UTF-8 at byte 100003"]),
                ("end.txt", "\u03c0".encode() * 5000 + b"\xcf", [], ["not UTF-8 at byte 10000"]),
                ("one.txt", TEXT, ["--eval-output", self.path("e.bin"), "--eval-fraction", "0.0001"],
                 ["e.bin would have no tokens", "1 documents", "--eval-fraction"]),
                ("a.jsonl", '{"t": "x"}\nno\n', ["--text-field", "t"], ["a.jsonl:2: is not JSON"]),
                ("b.jsonl", '{"t": 1}\n', ["--text-field", "t"], ["b.jsonl:1: has no text in the field 't'"]),
                ("c.jsonl", '["t"]\n', ["--text-field", "t"], ["c.jsonl:1: has no text"]),
                ("d.jsonl", '{"t": "\\ud800"}\n', ["--text-field", "t"], ["d.jsonl:1", "surrogate"]),
                ("e.jsonl", b'\xef\xbb\xbf{"t": ""}\n{"t": "\xe9"}\n', ["--text-field", "t"],
                 ["e.jsonl:2: is not UTF-8 at byte 20"]),
                ("f.jsonl", '{"t": ' + "[" * 100000 + "\n", ["--text-field", "t"], ["f.jsonl:1", "nested"]),
                ("g.jsonl", '{"t": "x"}'.encode("utf-16-le"), ["--text-field", "t"], ["g.jsonl:1: is not JSON"]),
                ("h.jsonl", '{"q": "x", "a": ""}\n', ["--prompt-field", "q", "--answer-field", "a", "--separator", "",
                                                      "--mask-output", self.path("m")],
                 ["m would leave out every token", "--answer-field"])]:
            with self.subTest(name=name):
                path = self.write(name, content)
                self.refused("--tokenizer", self.tokenizer, "--output", self.path("o.bin"), *fields, path, words=words)
                path.unlink()
                self.assertEqual(self.names(), before)
        text = self.write("t.txt", TEXT)
        self.refused("--tokenizer", self.tokenizer, "--output", self.path("kept.bin"), text, words=["kept.bin exists"])
        self.assertEqual(self.path("kept.bin").read_text(), "kept")
        empty = self.write("no-words.json", json.dumps({"model": {"type": "WordLevel", "vocab": {}, "unk_token": "u"}}))
        for tokenizer, words in [(self.path("none"), ["--tokenizer", "none"]), (text, ["not a tokenizer.json"]),
                                 (empty, ["no-words.json has no tokens"])]:
            self.refused("--tokenizer", tokenizer, "--output", self.path("o.bin"), "--separator", "", text, words=words)

    def test_a_byte_order_mark_is_not_a_token(self):
        mark, out = b"\xef\xbb\xbf", self.path("o.bin")
        for name, content, fields in [("t.txt", b"yes", []), ("t.jsonl", b'{"t": "yes"}', ["--text-field", "t"])]:
            self.prepare("--output", out, "--overwrite", *fields, self.write(name, mark + content))
            self.assertEqual(self.tokens(out), [*self.ids("yes"), self.end])

    def six_outputs(self):
        return ["--eval-fraction", "0.5", "--output", self.path("o.bin"), "--eval-output", self.path("e.bin"),
                "--mask-output", self.path("o.mask"), "--eval-mask-output", self.path("e.mask"),
                "--documents-output", self.path("o.starts.npy"), "--eval-documents-output", self.path("e.starts.npy")]

    def all_outputs(self, documents=400):
        self.write("d.jsonl", "".join(json.dumps({"q": "the", "a": f" tile {i}"}) + "\n" for i in range(documents)))
        return ["--tokenizer", self.tokenizer, *self.six_outputs(), "--prompt-field", "q", "--answer-field", "a",
                self.path("d.jsonl")]

    def test_a_full_disk_leaves_no_file(self):
        arguments = self.all_outputs()
        before = self.names()
        for room in (64, 512, 2048):
            self.refused(*arguments, words=["File too large"],
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
            self.assertEqual(self.names(), before)

    def test_a_signal_leaves_no_file(self):
        arguments = self.all_outputs()
        self.path("d.jsonl").unlink()
        before = self.names()
        program = ("import signal, sys; sys.path.insert(0, sys.argv.pop(1)); import prepare_tokens as p\n"
                   "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
                   "def wait(files, fields):\n"
                   "    yield ['text']\n"
                   "    print('ready', flush=True)\n"
                   "    sys.stdin.read()\n"
                   "p.documents_of = wait\n"
                   "sys.exit(p.main(sys.argv[1:]))")
        for sent, status in [(signal.SIGTERM, 143), (signal.SIGHUP, 129)]:
            self.write("d.jsonl", "{}")
            with subprocess.Popen([sys.executable, "-B", "-c", program, SCRIPT.parent, *arguments],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
                self.assertEqual(started.stdout.readline(), b"ready\n")
                self.assertEqual(len([name for name in self.names() if name.endswith(".part")]), 6)
                started.send_signal(sent)
                said = started.communicate()[1]
            self.assertEqual((started.returncode, said), (status, b""))
            self.path("d.jsonl").unlink()
            self.assertEqual(self.names(), before)

    def test_outputs_appear_together_or_not_at_all(self):
        arguments = [str(each) for each in self.all_outputs()]
        before = self.names()
        documents = prepare_tokens.documents_of
        for name in ("e.bin", "o.mask", "e.starts.npy"):
            def another_writer(files, fields):
                yield from documents(files, fields)
                self.write(name, "another's")
            prepare_tokens.documents_of = another_writer
            try:
                with contextlib.redirect_stderr(io.StringIO()) as said:
                    self.assertEqual(prepare_tokens.main(arguments), 2)
            finally:
                prepare_tokens.documents_of = documents
            self.assertIn(f"{name} exists", said.getvalue())
            self.assertEqual(self.names(), sorted([*before, name]))
            self.assertEqual(self.path(name).read_text(), "another's")
            self.path(name).unlink()

    def test_a_link_is_followed_to_the_file_it_names(self):
        text = self.write("t.txt", "yes")
        target = self.write("far/target.npy", "old")
        for link, options in [("o.bin", ["--overwrite"]), ("new.bin", [])]:
            self.path(link).symlink_to(Path("far") / ("target.npy" if options else "new.npy"))
            self.prepare("--output", self.path(link), *options, "--format", "npy", text)
            self.assertTrue(self.path(link).is_symlink())
        self.path("starts.npy").symlink_to(Path("other") / "starts")
        self.path("other").mkdir()
        self.prepare("--output", self.path("p.bin"), "--documents-output", self.path("starts.npy"), text)
        self.assertTrue(self.path("starts.npy").is_symlink())
        self.assertEqual(self.path("other/starts").read_bytes()[:6], b"\x93NUMPY")
        self.assertEqual(self.tokens(target), [*self.ids("yes"), self.end])
        self.assertEqual(target.read_bytes(), self.path("far/new.npy").read_bytes())
        self.assertEqual(sorted(each.name for each in target.parent.iterdir()), ["new.npy", "target.npy"])

    def test_bytes_that_are_no_text_are_refused_or_passed_on(self):
        bad = os.fsdecode(b"caf\xe9")
        self.refused("--tokenizer", self.tokenizer, "--encode-prompt", bad, words=["--encode-prompt is not UTF-8"])
        text = self.write("t.txt", "yes")
        self.refused("--tokenizer", self.tokenizer, "--output", self.path("o"), "--separator", bad, text,
                     words=["--separator is not UTF-8"])
        self.assertIn(bad, self.prepare("--output", self.path(bad), text))
        done = self.run_script("--tokenizer", self.tokenizer, "--decode", given=f"---{bad}\n{bad}\n")
        self.assertEqual((done.returncode, done.stdout), (2, f"---{bad}\n"))
        self.assertIn("not a token id", done.stderr)
        closed = self.run_script("--tokenizer", self.tokenizer, "--output", self.path("p"), text, given=None,
                                 preexec_fn=lambda: os.close(0))
        self.assertEqual((closed.returncode, closed.stderr), (0, ""))

    def test_a_vocabulary_above_sixteen_bits_gives_uint32(self):
        document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                    "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(131072)}, "unk_token": "w0"}}
        tokenizer = self.write("large.json", json.dumps(document))
        text = self.write("t.txt", "w131071 w65536 w7 " * 20)
        for name in ("o.bin", "o.npy"):
            out = self.path(name)
            done = self.run_script("--tokenizer", tokenizer, "--separator", "w1", "--output", out, text)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("uint32; train with --vocab 131072", done.stdout)
            self.assertEqual(self.tokens(out, "I"), [131071, 65536, 7] * 20 + [1])
            self.tessera("train", "--tokens", out, "--vocab", "131072", "--seq", "8", "--batch", "1", "--layers", "1",
                         "--hidden", "8", "--heads", "1", "--steps", "2")

    def test_pieces_of_a_long_text_have_the_tokens_of_the_whole(self):
        from tokenizers import Regex, pre_tokenizers
        bytes_of = {"add_prefix_space": False}
        llama = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")
        words_of = [pre_tokenizers.ByteLevel(**bytes_of),  # of GPT-2 and NeoX
                    pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(llama), "isolated"),  # of Llama 3
                                             pre_tokenizers.ByteLevel(use_regex=False, **bytes_of)])]
        def pieces_of(text):
            before, prepare_tokens.PIECE = prepare_tokens.PIECE, 40
            try:
                pieces = list(prepare_tokens.text_document(self.write("t.txt", text)))
            finally:
                prepare_tokens.PIECE = before
            self.assertEqual("".join(pieces), text)
            self.assertLessEqual(max(map(len, pieces)), 5 * 40)
            return pieces
        for text in [TEXT, TEXT.replace("\n", "\r\n"), "it is set\n\n" + TEXT, "small\r\n\r\nyes, it is.\r\n",
                     "The tile is set.\n\nAnd it is small!\n\n", "it is.\r\n\r\n",
                     "one.  two!\t\tthree  \n", "yes\n  no\n"]:
            text = "the " + text * 50
            pieces = pieces_of(text)
            self.assertGreater(len(pieces), 4)
            for words in words_of:
                split = [[word for word, _ in words.pre_tokenize_str(each)] for each in (text, *pieces)]
                self.assertEqual(sum(split[1:], []), split[0], repr(text[:40]))
        # Llama 3 joins a mark and the ends of lines after it: without blanks only GPT-2's words stay.
        text = '"one","two"\r\n' * 50
        self.assertEqual([word for each in pieces_of(text) for word, _ in words_of[0].pre_tokenize_str(each)],
                         [word for word, _ in words_of[0].pre_tokenize_str(text)])
        pieces_of("word " * 100 + "x" * 500)

    def peak_of(self, *arguments):
        """KiB of memory: not ru_maxrss, which begins with that of the process that starts the script."""
        program = ("import re, sys; sys.path.insert(0, sys.argv.pop(1)); import prepare_tokens; "
                   "assert prepare_tokens.main(sys.argv[1:]) == 0; "
                   "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])")
        done = subprocess.run([sys.executable, "-B", "-c", program, SCRIPT.parent, "--tokenizer", self.tokenizer,
                               "--overwrite", "--output", self.path("o.bin"), *arguments], capture_output=True,
                              text=True, check=True)
        return int(done.stdout.split()[-1])

    def test_memory_does_not_grow_with_the_text(self):
        def peak_of(megabytes):
            return self.peak_of(self.write("long.txt", TEXT * (megabytes * 2**20 // len(TEXT))))
        self.assertLess(peak_of(12), peak_of(1) + 8 * 2**10)

    def test_memory_does_not_grow_with_the_documents(self):
        def peak_of(documents):
            lines = self.write("d.jsonl", '{"q": "a", "a": "b"}\n' * documents)
            return self.peak_of("--prompt-field", "q", "--answer-field", "a", "--mask-output", self.path("m"),
                                "--documents-output", self.path("d.npy"), lines)
        self.assertLess(peak_of(300000), peak_of(50000) + 4 * 2**10)

    def test_ids_and_text_are_each_other_s_way_back(self):
        prompt = " it is \N{GREEK SMALL LETTER PI}\n" + END
        ids = self.prepare("--encode-prompt", prompt).strip()
        self.assertEqual(ids, ",".join(map(str, self.ids(prompt))))
        self.assertTrue(ids.endswith(f",{self.end}"))
        for line in (ids, ids.replace(",", " "), ids.replace(",", ", ")):
            done = self.run_script("--tokenizer", self.tokenizer, "--decode", given=line + "\n")
            self.assertEqual((done.stdout, done.stderr), (prompt + "\n", ""))
        done = self.run_script("--tokenizer", self.tokenizer, "--decode", given=f"{self.end},301\n")
        self.assertEqual(done.stdout, END + "\N{REPLACEMENT CHARACTER}\n")
        self.assertIn("1 ids are not in the tokenizer", done.stderr)
        for given in ("the\n", "1 -2\n", "1.5\n", "99999999999\n", "\N{SUPERSCRIPT TWO}\n"):
            self.refused("--tokenizer", self.tokenizer, "--decode", given="7\n" + given,
                         words=["line 2", "not a token id"])
        self.refused("--tokenizer", self.tokenizer, "--encode-prompt", "", words=["no tokens"])

    def tessera(self, *arguments):
        done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, encoding="utf-8", check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_tessera_trains_on_the_files_and_its_samples_are_text_again(self):
        text = self.write("text.txt", TEXT * 40)
        model = ["--vocab", "300", "--seq", "16", "--layers", "1", "--hidden", "16", "--heads", "1"]
        logs = []
        for name in ("train.bin", "train.npy"):
            weights = self.path(name + ".weights")
            self.prepare("--output", self.path(name), text)
            self.tessera("train", "--tokens", self.path(name), *model, "--batch", "4", "--steps", "30", "--lr", "0.02",
                         "--log", self.path(name + ".log"), "--checkpoint", weights)
            lines = self.path(name + ".log").read_text().splitlines()
            logs.append([json.loads(line).get("loss") for line in lines])
        self.assertEqual(logs[0], logs[1])
        pairs = self.write("pairs.jsonl", (json.dumps({"q": "the tile", "a": " is set"}) + "\n") * 60)
        files = [self.path(name) for name in ("pairs.bin", "pairs.mask", "pairs.npy")]
        self.prepare("--prompt-field", "q", "--answer-field", "a", "--output", files[0], "--mask-output", files[1],
                     "--documents-output", files[2], pairs)
        self.tessera("train", "--tokens", files[0], "--loss-mask", files[1], "--pack", files[2], *model, "--batch", "4",
                     "--steps", "2")
        prompt = self.prepare("--encode-prompt", "the tile").strip()
        sampled = self.tessera("sample", "--init", weights / "model.safetensors", *model, "--prompt-tokens",
                               prompt, "--count", "8", "--samples", "2", "--temperature", "0")
        done = self.run_script("--tokenizer", self.tokenizer, "--decode", given=sampled)
        self.assertEqual(done.returncode, 0, done.stderr)
        numbers = re.findall(r"^[0-9,]+$", sampled, re.MULTILINE)
        self.assertEqual(len(numbers), 2)
        texts = [self.made.decode([int(token) for token in line.split(",")], skip_special_tokens=False)
                 for line in numbers]
        self.assertTrue(all(each.startswith("the tile") for each in texts), texts)
        summary = sampled[sampled.index("\n---\n") + 1:]
        self.assertEqual(done.stdout, f"--- sample 1 of 2\n{texts[0]}\n--- sample 2 of 2\n{texts[1]}\n{summary}")

    def test_the_commands_of_the_page_run(self):
        page = (ROOT / "docs/tokens.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 2)
        self.write("text.txt", TEXT)
        self.write("documents.jsonl", (json.dumps({"text": TEXT}) + "\n") * 3000)
        self.write("pairs.jsonl", json.dumps({"prompt": "set", "answer": " beside"}) + "\n")
        self.path("scripts").symlink_to(ROOT / "scripts")
        self.path("bin").mkdir()
        self.path("bin/tessera").symlink_to(COMMAND)
        programs = f"{self.path('bin')}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        short = "\n".join(blocks).replace("--steps 1000", "--steps 1").replace("--count 100", "--count 2")
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", short], cwd=self.folder.name, capture_output=True,
                              encoding="utf-8", env={**os.environ, "PATH": programs}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("warning"), done.stderr.count("are not in the tokenizer"), done.stderr)
        self.assertRegex(done.stdout, r"(?s)--- sample 1 of 2\nThe tile.*\n--- sample 2 of 2\nThe tile.*\n---\n.*"
                                      "tokens/s")
        self.assertEqual(self.tokens(self.path("pairs.npy")), [*self.ids("set"), *self.ids(" beside"), self.end])


if __name__ == "__main__":
    COMMAND = os.path.abspath(sys.argv.pop(1))
    tested = unittest.main(exit=False).result
    if not tested.wasSuccessful():
        sys.exit(1)
    if not HAVE_TOKENIZERS:
        print(f"skipped: {NEEDS_TOKENIZERS}")
        sys.exit(77)
