#!/usr/bin/env python3
"""Turns text into token files for `tessera train --tokens`, and token ids of `tessera sample` into text.

  prepare_tokens.py --tokenizer tokenizer.json --output train.bin text.txt folder
  prepare_tokens.py --tokenizer tokenizer.json --output train.bin --text-field text documents.jsonl
  prepare_tokens.py --tokenizer tokenizer.json --output train.npy --prompt-field question \\
      --answer-field answer --mask-output train.mask pairs.jsonl
  prepare_tokens.py --tokenizer tokenizer.json --output train.npy --eval-output held-out.npy \\
      --eval-fraction 0.05 --text-field text documents.jsonl
  prepare_tokens.py --tokenizer tokenizer.json --encode-prompt 'Once upon a time'
  tessera sample ... | prepare_tokens.py --tokenizer tokenizer.json --decode

A text file is one document, and so is a line of a JSON Lines file. Of a folder the text files are read in
the byte order of their names: not hidden, empty, .dat or .u8 files, nor subfolders; with a field, those that
end in .jsonl. After each document comes the separator. The tokenizer adds no tokens of its own, but special
tokens that a text spells out are one token each.

The output has llm.c's header, or is a NumPy array if its name ends in .npy; its tokens are uint16 if the
vocabulary allows it, otherwise uint32. A mask has one byte a token, 1 for answers and the separators after them
and 0 for prompts. Outputs are written under temporary names, in pieces, and renamed when all are complete. It needs
Python's package `tokenizers`. docs/tokens.md has more. The status is 2 if something is refused.
"""

import argparse
import array
import contextlib
import json
import os
import random
import re
import signal
import struct
import sys
from pathlib import Path

# Characters of a text that are encoded as one. A text file of more is cut (CUTS).
PIECE = 1 << 16
# Texts are encoded together, on all cores, once they have this many characters: some 60 MiB of memory in all.
BATCH = 1 << 19

# Separators of well-known tokenizers, the first that is there is taken.
SEPARATORS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]")

# Where a text is cut so that its parts have the tokens of the whole, best first; each finds the last such place.
# Tokenizers of bytes split a text before blanks, but join blanks with each other, a blank with the word after it,
# and some of them (Llama 3, GPT-4o) ends of lines, or '/', with the mark before them.
CUTS = [re.compile(place, re.DOTALL) for place in (
    r".*\S\n(?=[^\s/])",  # between two lines
    r".*[^\W_](?=\r?\n)",  # after a letter or digit, before ends of lines
    r".*\S(?= )")]  # before a blank
# Where a long text is cut that has no such place: this suits tokenizers that do not join marks and ends of lines.
LAST_CUT = re.compile(r".*\S(?=\s)", re.DOTALL)

# They end the script with 128 more than their numbers.
SIGNALS = (signal.SIGTERM, signal.SIGHUP)

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
LLMC_HEADERS = {"u2": (20240520, 1), "u4": (20240801, 7)}  # magic and version by type of a token
LLMC_MOST = 2**31 - 1
NPY_HEADER_BYTES = 128

# The options that name a file to write.
OUTPUTS = ("output", "mask_output", "documents_output", "eval_output", "eval_mask_output", "eval_documents_output")


class Refusal(Exception):
    """What the user asked for cannot be; the text says why and what to do."""


# ---- outputs


def llmc_header(kind, count):
    return struct.pack("<3i", *LLMC_HEADERS[kind], count).ljust(1024, b"\0")


def npy_header(kind, count):
    text = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': ({count},), }}"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", NPY_HEADER_BYTES - 10)
    return start + text.encode().ljust(NPY_HEADER_BYTES - 11) + b"\n"


HEADERS = {"llmc": llmc_header, "npy": npy_header, "plain": lambda kind, count: b""}


class NumberFile:
    """A file of numbers, none below 0, that exists under its name only once `publish` has returned.

    `kind` is NumPy's name of their type without the byte order, which is little-endian.
    """

    def __init__(self, path, layout, kind):
        self.path, self.layout, self.kind = path, layout, kind
        self.target = target_of(path)
        self.count = 0
        self.type = next(code for code in "BHILQ" if array.array(code).itemsize == int(kind[1:]))
        self.part = self.target.with_name(f".{self.target.name}.{os.getpid()}.part")
        self.file = None

    def header(self):
        return HEADERS[self.layout](self.kind, self.count)

    def open(self):
        self.file = open(self.part, "xb")
        self.file.write(self.header())

    def add(self, numbers):
        self.count += len(numbers)
        if self.layout == "llmc" and self.count > LLMC_MOST:
            raise Refusal(f"{self.path}: llm.c's header counts to {LLMC_MOST} tokens; give --format npy, or "
                          "several outputs of fewer inputs each")
        values = array.array(self.type, numbers)
        if sys.byteorder == "big":
            values.byteswap()
        self.file.write(values)

    def complete(self):
        self.file.seek(0)
        self.file.write(self.header())
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def publish(self):
        os.replace(self.part, self.target)

    def discard(self):
        """Removes what is not published. Closing it fails on a full disk, as it writes what is buffered."""
        if self.file is None:
            return
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            self.part.unlink()


class Split:
    """The files of the documents to train on, or of those that are held out; `mask` and `starts` may be None."""

    def __init__(self, tokens, mask, starts, separator):
        self.tokens, self.mask, self.starts, self.separator = tokens, mask, starts, separator
        self.files = [file for file in (tokens, mask, starts) if file is not None]
        self.start = 0  # of the document that is being written
        self.documents = self.targets = 0

    def add(self, ids, target):
        """`target`: 1 if the loss counts these tokens, otherwise 0."""
        self.tokens.add(ids)
        self.targets += target * len(ids)
        if self.mask is not None:
            self.mask.add(bytes([target]) * len(ids))

    def end_document(self):
        self.add(self.separator, target=1)
        if self.starts is not None and self.tokens.count > self.start:  # an empty document may have no token
            self.starts.add([self.start])
        self.start = self.tokens.count
        self.documents += 1


def target_of(path):
    """The file to write: what a link names, which need not exist."""
    return Path(os.path.realpath(path))


def refuse_output(path, overwrite):
    target = target_of(path)
    if not os.path.lexists(target):
        return
    if not target.is_file():
        raise Refusal(f"the output {path} is not a regular file; give the name of a file")
    if not overwrite:
        raise Refusal(f"{path} exists; give another name, or --overwrite")


# ---- documents


def is_text_file(path):
    hidden = path.name.startswith(".") or path.suffix in (".dat", ".u8")
    return not hidden and path.is_file() and path.stat().st_size > 0


def input_files(inputs, json_lines):
    """The files to read, in order."""
    files = []
    for path in map(Path, inputs):
        if not path.is_dir():
            files.append(path)
            continue
        found = [each for each in sorted(path.iterdir(), key=lambda each: os.fsencode(each.name))
                 if is_text_file(each) and (each.suffix == ".jsonl" or not json_lines)]
        if not found:
            raise Refusal(f"the folder {path} has no {'.jsonl' if json_lines else 'text'} files")
        files += found
    for path in files:
        if not path.is_file():
            raise Refusal(f"{path}: {'is not a file' if path.exists() else 'there is no such file'}")
        if path.suffix == ".jsonl" and not json_lines:
            raise Refusal(f"{path} has JSON lines: give --text-field NAME, or --prompt-field NAME and --answer-field "
                          "NAME")
    return files


def cut_of(text, places=CUTS):
    """Where `text` is cut at the first of `places` that it has; 0 if it has none."""
    return next((found.end() for found in (place.match(text) for place in places) if found), 0)


def pieces_of(file):
    """The text of `file` in pieces of about PIECE characters, at most five times as many."""
    text = ""
    while True:
        more = file.read(PIECE)
        text += more
        if not more:
            break
        cut = cut_of(text)
        if cut == 0 and len(text) >= 4 * PIECE:
            cut = cut_of(text, [LAST_CUT]) or len(text)
        if cut > 0:
            yield text[:cut]
            text = text[cut:]
    yield text


def not_utf8(place, file, error):
    """The refusal of bytes that `file` was read up to."""
    at = file.tell() - len(error.object) + error.start
    return Refusal(f"{place} is not UTF-8 at byte {at} of the file, counted from 0 ({error.reason}); convert it, for "
                   "instance with iconv")


def text_document(path):
    with open(path, encoding="utf-8-sig", newline="") as file:  # a byte-order mark is no text
        try:
            yield from pieces_of(file)
        except UnicodeDecodeError as error:
            raise not_utf8(path, file.buffer, error) from None


def json_documents(path, fields):
    """The values of `fields` of each line; blank lines are passed over."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig")
                if not text.strip():
                    continue
                record = json.loads(text)
            except UnicodeDecodeError as error:
                raise not_utf8(f"{path}:{number}:", file, error) from None
            except ValueError as error:
                raise Refusal(f"{path}:{number}: is not JSON: {error}") from None
            except RecursionError:
                raise Refusal(f"{path}:{number}: is JSON that is nested too deeply to be read") from None
            values = [record.get(field) if isinstance(record, dict) else None for field in fields]
            for field, value in zip(fields, values):
                if not isinstance(value, str):
                    raise Refusal(f"{path}:{number}: has no text in the field '{field}'")
                if LONE_SURROGATE.search(value):
                    raise Refusal(f"{path}:{number}: the field '{field}' has half a surrogate pair, which is no text")
            yield values


def documents_of(files, fields):
    """Each document as its texts, which are encoded one by one."""
    for path in files:
        if fields:
            yield from json_documents(path, fields)
        else:
            yield text_document(path)


# ---- the tokenizer


def load_tokenizer(path):
    try:
        import tokenizers
    except ImportError:
        raise Refusal("Python's package `tokenizers` is not installed for this Python; run\n"
                      f"  {sys.executable} -m pip install tokenizers") from None
    if not Path(path).is_file():
        raise Refusal(f"--tokenizer: there is no file {path}; give the tokenizer.json of a model")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises Exception itself
        raise Refusal(f"--tokenizer: {path} is not a tokenizer.json: {error}") from None
    if tokenizer.get_vocab_size(with_added_tokens=True) == 0:
        raise Refusal(f"--tokenizer: {path} has no tokens; give the tokenizer.json of a model")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def separator_of(tokenizer, name):
    """The ids after each document."""
    if name == "":
        return []
    if name is not None:
        token = tokenizer.token_to_id(name)
        if token is None:
            raise Refusal(f"--separator: the tokenizer has no token '{name}'; {special_tokens(tokenizer)}")
        return [token]
    for known in SEPARATORS:
        token = tokenizer.token_to_id(known)
        if token is not None:
            return [token]
    raise Refusal("the tokenizer has no token that is known to end a text; give --separator TOKEN, or --separator '' "
                  f"for none; {special_tokens(tokenizer)}")


def special_tokens(tokenizer):
    added = [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    return f"its special tokens are {' '.join(added[:20])}" if added else "it has no special tokens"


class Batches:
    """Encodes texts in batches, and writes them and the ends of documents in the order of the calls."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.pending = []  # a split, a text or None for the end of a document, and whether the text is a target
        self.characters = 0

    def add_text(self, split, text, target):
        self.pending.append((split, text, target))
        self.characters += len(text)
        if self.characters + 64 * len(self.pending) >= BATCH:  # empty ones take memory too
            self.write()

    def end_document(self, split):
        self.pending.append((split, None, None))

    def write(self):
        texts = [text for _, text, _ in self.pending if text is not None]
        encode = getattr(self.tokenizer, "encode_batch_fast", self.tokenizer.encode_batch)  # without offsets
        encoded = iter(encode(texts, add_special_tokens=False))
        for split, text, target in self.pending:
            if text is None:
                split.end_document()
            else:
                split.add(next(encoded).ids, target)
        self.pending, self.characters = [], 0


# ---- what the script does


def choose_layout(path):
    return "npy" if path.suffix == ".npy" else "llmc"


def flag_of(option):
    return "--" + option.replace("_", "-")


def given(settings, options):
    return [option for option in options if getattr(settings, option) is not None]


def refuse_outputs(settings, inputs):
    named = {option: Path(getattr(settings, option)) for option in given(settings, OUTPUTS)}
    first = {}
    for option, path in named.items():
        other = first.setdefault(target_of(path), option)
        if other != option:
            raise Refusal(f"{flag_of(other)} and {flag_of(option)} are both {target_of(path)}")
    for path in named.values():
        refuse_output(path, settings.overwrite)
        if path.exists() and any(os.path.samefile(path, each) for each in inputs):
            raise Refusal(f"{path} is an input and an output")


def splits_of(settings, kind, separator):
    """That of the documents to train on and, with --eval-output, that of those that are held out."""
    def file_of(option, layout, kind):
        name = getattr(settings, option)
        return None if name is None else NumberFile(Path(name), layout or choose_layout(Path(name)), kind)

    return [Split(file_of(output, settings.format, kind), file_of(mask, "plain", "u1"), file_of(starts, "npy", "i8"),
                  separator)
            for output, mask, starts in (OUTPUTS[:3], OUTPUTS[3:]) if given(settings, [output])]


def leave(number, _):
    ignore_signals()
    raise SystemExit(128 + number)


def ignore_signals():
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def heed_signals():
    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # nohup's
            signal.signal(each, leave)


def write_documents(documents, splits, settings, batches):
    """The last of `splits` gets the fraction that is held out, if there are two."""
    draw = random.Random(settings.seed)
    for document in documents:
        held_out = len(splits) == 2 and draw.random() < settings.eval_fraction
        split = splits[-1] if held_out else splits[0]
        for place, text in enumerate(document):
            batches.add_text(split, text, target=int(place > 0))  # only pairs have a mask: the prompt, the answer
        batches.end_document(split)
    batches.write()


def print_summary(splits, separator, vocabulary):
    """What was written, and the options that read it."""
    for split, prefix in zip(splits, ("--", "--eval-")):
        tokens = split.tokens
        print(f"{tokens.path}: {tokens.count} tokens of {split.documents} documents, uint{8 * int(tokens.kind[1:])}; "
              f"train with --vocab {vocabulary} or more")
        if split.mask is not None:
            print(f"{split.mask.path}: {split.targets} of {split.mask.count} tokens are targets; train with "
                  f"{prefix}loss-mask {split.mask.path}")
        if split.starts is not None:
            print(f"{split.starts.path}: positions of {split.starts.count} documents; train with {prefix}pack "
                  f"{split.starts.path} to pack them")
    if separator and splits[0].starts is None:
        print(f"separator {separator[0]} ends each document; train with --pack {separator[0]} to pack them")


def prepare(settings):
    fields = settings.fields
    inputs = input_files(settings.inputs, json_lines=bool(fields))
    refuse_outputs(settings, inputs)
    tokenizer = load_tokenizer(settings.tokenizer)
    separator = separator_of(tokenizer, settings.separator)
    vocabulary = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    splits = splits_of(settings, "u2" if vocabulary <= 1 << 16 else "u4", separator)
    files = [file for split in splits for file in split.files]
    heed_signals()
    try:
        for file in files:
            file.open()
        write_documents(documents_of(inputs, fields), splits, settings, Batches(tokenizer))
        for split in splits:
            if split.tokens.count == 0:
                raise Refusal(f"{split.tokens.path} would have no tokens: {sum(each.documents for each in splits)} "
                              "documents were read; give more of them, another --eval-fraction or --seed, or files of "
                              "their own for what is held out")
            if split.mask is not None and split.targets == 0:
                raise Refusal(f"{split.mask.path} would leave out every token: the answers are empty, and there is no "
                              "separator; check --answer-field")
        for file in files:
            file.complete()
        for file in files:
            refuse_output(file.path, settings.overwrite)  # it may have appeared by now
        ignore_signals()  # all are published, or none
        for file in files:
            file.publish()
    finally:
        for file in files:
            file.discard()
    print_summary(splits, separator, vocabulary)


def decoded(tokenizer, ids):
    """The text of `ids`, and how many of them the tokenizer does not have: a model's vocabulary may be larger."""
    text, known, unknown = "", [], 0
    for token in ids:
        if tokenizer.id_to_token(token) is not None:
            known.append(token)
            continue
        text += tokenizer.decode(known, skip_special_tokens=False) + "\N{REPLACEMENT CHARACTER}"
        known, unknown = [], unknown + 1
    return text + tokenizer.decode(known, skip_special_tokens=False), unknown


def decode(settings):
    """Each line of ids is a text. Lines of `tessera sample` around them are printed as they are."""
    tokenizer = load_tokenizer(settings.tokenizer)
    unknown, ended = 0, False
    for number, line in enumerate(sys.stdin or (), start=1):
        ended = ended or line.rstrip("\n") == "---"
        if ended or line.startswith("---") or not line.strip():
            print(line, end="", flush=True)
            continue
        words = re.split(r"[\s,]+", line.strip())
        for word in words:
            if not re.fullmatch(r"[0-9]{1,10}", word) or int(word) >= 2**31:
                raise Refusal(f"line {number}: '{word[:40]}' is not a token id; --decode reads numbers, as `tessera "
                              "sample --prompt-tokens` prints them")
        text, others = decoded(tokenizer, [int(word) for word in words])
        print(text, flush=True)
        unknown += others
    if unknown > 0:
        print(f"warning: {unknown} ids are not in the tokenizer, and are shown as \N{REPLACEMENT CHARACTER}",
              file=sys.stderr)


def encode_prompt(settings):
    ids = load_tokenizer(settings.tokenizer).encode(settings.encode_prompt, add_special_tokens=False).ids
    if not ids:
        raise Refusal("--encode-prompt: the text has no tokens")
    print(",".join(map(str, ids)))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*", metavar="PATH", help="text files, folders or JSON Lines files")
    parser.add_argument("--tokenizer", required=True, metavar="FILE", help="the tokenizer.json of a model")
    parser.add_argument("--output", metavar="FILE", help="the token file to write")
    parser.add_argument("--mask-output", metavar="FILE",
                        help="the loss mask of --output to write: 0 for prompts, 1 for answers and separators")
    parser.add_argument("--documents-output", metavar="FILE.npy",
                        help="the positions in --output of the documents' first tokens, for `tessera train --pack`")
    parser.add_argument("--eval-output", metavar="FILE", help="the token file of the documents that are held out")
    parser.add_argument("--eval-mask-output", metavar="FILE", help="the loss mask of --eval-output")
    parser.add_argument("--eval-documents-output", metavar="FILE.npy", help="the positions in --eval-output")
    parser.add_argument("--eval-fraction", type=float, metavar="F", help="of the documents, drawn one by one by --seed")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--format", choices=("llmc", "npy"), help="default: npy for names with .npy, otherwise llmc")
    parser.add_argument("--text-field", metavar="NAME", help="read JSON lines: the field with the text")
    parser.add_argument("--prompt-field", metavar="NAME", help="read JSON lines: the field before the answer")
    parser.add_argument("--answer-field", metavar="NAME", help="the field after the prompt, joined as it is")
    parser.add_argument("--separator", metavar="TOKEN",
                        help="the token after each document (default: the tokenizer's end of text; '': none)")
    parser.add_argument("--overwrite", action="store_true", help="replace outputs that exist")
    parser.add_argument("--encode-prompt", metavar="TEXT", help="print the ids of TEXT for --prompt-tokens")
    parser.add_argument("--decode", action="store_true", help="print the text of the ids in the standard input")
    return parser.parse_intermixed_args(arguments)


def check(settings):
    """Sets settings.fields, or throws Refusal."""
    for name in ("encode_prompt", "separator"):
        if LONE_SURROGATE.search(getattr(settings, name) or ""):  # what Python makes of other bytes
            raise Refusal(f"{flag_of(name)} is not UTF-8")
    if (settings.prompt_field is None) != (settings.answer_field is None):
        raise Refusal("--prompt-field and --answer-field go together; give both")
    if settings.text_field is not None and settings.prompt_field is not None:
        raise Refusal("--text-field and --prompt-field cannot be combined; give one")
    settings.fields = [field for field in (settings.text_field, settings.prompt_field, settings.answer_field)
                       if field is not None]
    asked = (settings.output is not None) + (settings.encode_prompt is not None) + settings.decode
    if asked != 1:
        raise Refusal("give one of --output FILE, --encode-prompt TEXT and --decode")
    if settings.output is None and settings.inputs:
        raise Refusal("PATH has no effect without --output FILE")
    if settings.output is not None and not settings.inputs:
        raise Refusal("no PATH to read; give text files, folders or JSON Lines files")
    if (settings.eval_output is None) != (settings.eval_fraction is None):
        raise Refusal("--eval-output and --eval-fraction go together; give both")
    if settings.eval_fraction is not None and not 0 < settings.eval_fraction < 1:
        raise Refusal(f"--eval-fraction is {settings.eval_fraction}: it must be above 0 and below 1")
    check_masks_and_positions(settings)


def check_masks_and_positions(settings):
    for owner, *others in (OUTPUTS[:3], OUTPUTS[3:]):
        for option in given(settings, others):
            if not given(settings, [owner]):
                raise Refusal(f"{flag_of(option)} has no effect without {flag_of(owner)} FILE")
    for option, held_out in zip(OUTPUTS[1:3], OUTPUTS[4:]):
        if settings.eval_output is not None and given(settings, [option, held_out]) == [option]:
            raise Refusal(f"{flag_of(option)} and --eval-output need {flag_of(held_out)} FILE; give it")
    for option in given(settings, ("mask_output", "eval_mask_output")):
        if settings.prompt_field is None:
            raise Refusal(f"{flag_of(option)}: without prompts the loss counts every token, and the mask would be all "
                          "ones; give --prompt-field and --answer-field, or leave the mask out")
        path = Path(getattr(settings, option))
        if path.suffix == ".npy":
            raise Refusal(f"{flag_of(option)}: {path} would have one byte for each token and no header of NumPy's; give "
                          "another name")
    for option in given(settings, ("documents_output", "eval_documents_output")):
        path = Path(getattr(settings, option))
        if path.suffix != ".npy":
            raise Refusal(f"{flag_of(option)}: {path} would be a NumPy array; give a name that ends in .npy")


def main(arguments):
    settings = parse(arguments)
    for stream in filter(None, (sys.stdin, sys.stdout)):  # None: closed
        stream.reconfigure(errors="surrogateescape")  # names and lines that are not UTF-8 stay as they are
    try:
        check(settings)
        if settings.decode:
            decode(settings)
        elif settings.encode_prompt is not None:
            encode_prompt(settings)
        else:
            prepare(settings)
    except (Refusal, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
