#!/usr/bin/env python3
"""Runs the commands of the documentation's pages, as a reader of one page would.

  run_pages.py BUILD FOLDER [--page PAGE]... [--list]

BUILD is the folder of a build with the command; FOLDER, which is new, empty or of an earlier
run, becomes a copy of the files under git, in which the build is build/release. In each page the blocks ```sh are run in order; the copy is the same
for all blocks of a page, and has the texts that pages name (text.txt, held-out.txt). Trainings that
would make more than 2 steps make 2. Only the command, the examples and harmless tools are run: a block
with another command (a build, an installation, a job of processes), with a command within a word, in the
background or with a path out of the copy fails unless it is marked.

A line <!-- not run: REASON --> before a block keeps it from being run. Its commands are then checked: a
script is there and names its options, `tessera COMMAND --help` names the command's; presets, targets,
examples and files of the repository exist.

A block ```text with <!-- printed --> before it is what the commands above print, line by line; with
<!-- printed: numbers vary -->, but for numbers. A line `...` stands for any lines. There the steps are
those of the page.

The status is 1 where a command fails, prints something else, or has an option that does not exist.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import repository  # noqa: E402

SECONDS = 100  # per block
# Programs that a block may run besides `tessera` and the examples.
HARMLESS = {"cat", "cd", "cp", "diff", "echo", "grep", "head", "ls", "mkdir", "sed", "tail"}
STEPS = 2
FENCE = re.compile(r"(?:^<!-- (not run|printed)(?:: ([^\n]*?))? -->\n+)?^( *)```(\w*)[^\n]*\n(.*?)^\3```$",
                   re.MULTILINE | re.DOTALL)
# Tokens of a shell: spaces and comments, redirections, operators, words.
TOKEN = re.compile(r"""[ \t]+|\#[^\n]*|\d*&?[<>]+[&|]?|(?P<operator>[;&|()\n]+)
                       |(?P<word>(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\;&|()<>])+)""", re.DOTALL | re.VERBOSE)
# Placed before the command in PATH: runs as many steps as needed to see that it works.
SHORTENED = """#!/bin/bash
arguments=() previous=''
for argument in "$@"; do
  case $previous in
    --steps) if [[ $argument =~ ^[0-9]+$ ]] && ((argument > {steps})); then argument={steps}; fi ;;
    --checkpoint-every | --eval-every) if [[ $argument =~ ^[0-9]+$ ]]; then argument=1; fi ;;
  esac
  arguments+=("$argument")
  previous=$argument
done
case ${{1:-}} in
  train | compare) if [[ " $* " != *" --steps "* && " $* " != *" --help "* ]]; then arguments+=(--steps {steps}); fi ;;
esac
exec {command} "${{arguments[@]}}"
"""


def pages():
    return [name for name in repository.files("docs/*.md", "README.md", "README.ko.md", "CONTRIBUTING.md")
            if not name.startswith("docs/decisions/")]


class Block:
    """Commands of a page, and what the page says that they print."""

    def __init__(self, line, reason, content):
        self.line, self.reason, self.content = line, reason, content
        self.printed, self.numbers_vary = None, False


def blocks(text):
    """The blocks of commands of a page, and (line, what is wrong) of its fences."""
    found = []
    wrong = [(text[:match.start()].count("\n") + 1, "a fence of ~~~ is not read: write ```")
             for match in re.finditer(r"^ *~~~", text, re.MULTILINE)]
    for match in FENCE.finditer(text):
        mark, reason, _, language, content = match.groups()
        line = text[:match.start(5)].count("\n")
        if language == "sh":
            found.append(Block(line, reason or "" if mark == "not run" else None, content))
        elif mark == "printed":
            if not found or found[-1].reason is not None:
                wrong.append((line, "nothing is run that could print this"))
            else:
                found[-1].printed, found[-1].numbers_vary = content, reason == "numbers vary"
        if not language:
            wrong.append((line, "the fence has no language: sh, text, ..."))
        elif language in ("bash", "shell", "zsh"):
            wrong.append((line, f"a fence of {language} is not read: write sh"))
    return found, wrong


def commands(content):
    """The commands of a block as lists of words, without comments, and the operators between them. The
    words of a redirection are of the command."""
    found, operators, at = [[]], set(), 0
    while at < len(content):
        token = TOKEN.match(content, at)
        if not token:
            raise ValueError(f"cannot be read from {content[at:at + 20]!r} on")
        at = token.end()
        if token.lastgroup == "operator":
            operators.add(re.sub(r"\s", "", token.group()))
            found.append([])
        elif token.lastgroup == "word":
            found[-1] += shlex.split(token.group().replace("\\\n", ""))
    return [command for command in found if command], operators


class Trial:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.helps = {}
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        self.presets = {preset["name"] for preset in presets["configurePresets"]}
        self.names = repository.files(others=False)
        self.tops = {name.split("/")[0] for name in self.names if "/" in name}
        self.targets = {word for name in self.names if name.endswith("CMakeLists.txt")
                        for word in re.findall(r"\w+", (ROOT / name).read_text(encoding="utf-8"))}
        self.failures = []
        self.ran = self.checked = self.read = 0

    # ----------------------------------------------------------------------------- layout

    def lay_out(self):
        """A copy of the repository, in which nothing is a link to the source tree."""
        marker = repository.claim(self.folder, "pages", ROOT, self.build)
        self.remove_but({marker.name})
        for name in self.names:
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self.whole, self.short = self.folder / "build/whole", self.folder / "build/short"
        release = self.folder / "build/release"
        for path in (self.whole, self.short, release / "tools"):
            path.mkdir(parents=True)
        # Only programs: pages must not write into the build's other files.
        for program in (self.build / "examples").glob("*"):
            if program.is_file() and os.access(program, os.X_OK):
                (release / "examples").mkdir(exist_ok=True)
                (release / "examples" / program.name).symlink_to(program)
        command = self.build / "tools/tessera"
        (self.whole / "tessera").symlink_to(command)
        shortened = self.short / "tessera"
        shortened.write_text(SHORTENED.format(steps=STEPS, command=shlex.quote(str(command))))
        shortened.chmod(0o755)
        (release / "tools/tessera").symlink_to(shortened)

    def remove_but(self, names):
        for path in self.folder.iterdir():
            if path.name in names:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def fresh(self):
        """Removes what an earlier page's commands have written, and puts the texts there."""
        self.remove_but({Path(name).parts[0] for name in self.names} | {"build", ".tessera-pages"})
        text = "".join(f"{(ROOT / name).read_text(encoding='utf-8')}\n" for name in ("README.md", "CONTRIBUTING.md"))
        (self.folder / "text.txt").write_text(text, encoding="utf-8")
        (self.folder / "held-out.txt").write_text(text[::-1], encoding="utf-8")

    # -------------------------------------------------------------------------------- run

    @staticmethod
    def not_to_run(content):
        """What a block has that is not to be run here, if anything."""
        # Commands within words, and quotes and texts that commands() parses unlike a shell.
        if within := re.search(r"`|\$[('\"]|<<|<\(|>\(", content):
            return within.group()
        found, operators = commands(content)
        if others := operators - {"", ";", "&&", "||", "|"}:
            return min(others)
        for words in found:
            name = next((word for word in words if not re.match(r"[A-Za-z_]\w*=", word)), "")
            if name not in HARMLESS | {"tessera", ""} and not name.startswith("build/release/examples/"):
                return name
            for word in words:
                if re.match(r"[/~](?!dev/null$)", word) or ".." in re.split(r"[/=]", word):
                    return word
        return None

    def run(self, page, block):
        try:
            other = self.not_to_run(block.content)
        except ValueError as error:
            self.fail(page, block, error)
            return
        if other:
            self.fail(page, block, f"{other} is not run here: say <!-- not run: why --> before the block")
            return
        short = block.printed is None
        path = os.pathsep.join([str(self.short if short else self.whole), os.environ["PATH"]])
        began = time.monotonic()
        # A separate session, so that all its processes end with it.
        process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", block.content], cwd=self.folder,
                                   env={**os.environ, "PATH": path}, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            output = process.communicate(timeout=SECONDS)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self.fail(page, block, f"takes more than {SECONDS} s; say <!-- not run: why -->")
            return
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.ran += 1
        seconds = time.monotonic() - began
        if seconds > 3:
            print(f"{page}:{block.line}: {seconds:.1f} s", flush=True)
        if process.returncode != 0:
            self.fail(page, block, f"status {process.returncode}\n{block.content}{output[-2000:]}")
        elif block.printed is not None:
            self.compare(page, block, output)

    def compare(self, page, block, printed):
        def form(line):
            if not block.numbers_vary:
                return line.rstrip()
            return re.sub(r"\s+", " ", re.sub(r"\d[\d.,:]*", "#", line)).strip()

        actual = [form(line) for line in printed.splitlines()]
        at, anywhere = 0, False
        for line in block.printed.splitlines():
            if line.strip() == "...":
                anywhere = True
                continue
            wanted = form(line)
            places = [i for i in range(at, len(actual)) if actual[i] == wanted]
            if not places or not (anywhere or places[0] == at):
                self.fail(page, block, f"the page shows what is not printed here:\n{line}\nit prints:\n{printed}")
                return
            at, anywhere = places[0] + 1, False
        if at < len(actual) and not anywhere:
            self.fail(page, block, f"prints more than the page shows:\n{actual[at]}")

    # ------------------------------------------------------------------------------ check

    def help_of(self, command):
        if command not in self.helps:
            done = subprocess.run([str(self.build / "tools/tessera"), *command.split(), "--help"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
            self.helps[command] = done.stdout if done.returncode == 0 else None
        return self.helps[command]

    def check_tessera(self, words):
        command = next((word for word in words if re.fullmatch(r"[a-z]+", word)), "")
        if command in ("COMMAND", ""):
            return
        text = self.help_of(command)
        if text is None:
            yield f"there is no `tessera {command}`"
            return
        for word in words:
            flag = re.match(r"(--[a-z][\w-]*|-[a-z]$)", word)
            if flag and not re.search(rf"(?<![\w-]){re.escape(flag.group(1))}(?![\w-])", text):
                # Parts of a command have their own options.
                part = next((w for w in words[words.index(command) + 1:] if re.fullmatch(r"[a-z_]+", w)), None)
                inner = self.help_of(f"{command} {part}") if part else None
                if not inner or flag.group(1) not in inner:
                    yield f"`tessera {command}` has no option {flag.group(1)}"

    def check_script(self, name, words):
        path = ROOT / name
        if not path.is_file():
            yield f"there is no {name}"
            return
        text = path.read_text(encoding="utf-8")
        # A script may only start a program.
        for program in re.findall(r"/([\w/]+\.py)", text):
            if (path.parent / program).is_file():
                text += (path.parent / program).read_text(encoding="utf-8")
        for word in words:
            if word == "--" or not word.startswith("-"):
                if word == "tessera" or word.endswith("/tessera"):
                    return
                continue
            flag = word.split("=")[0]
            if flag not in text and "mpirun" not in name:
                yield f"{name} does not know {flag}"

    def check(self, page, block):
        self.checked += 1
        try:
            found = commands(block.content)[0]
        except ValueError as error:
            self.fail(page, block, error)
            return
        for words in found:
            for at, word in enumerate(words):
                name = word.removeprefix("./")
                found = []
                if os.path.basename(name) == "tessera":
                    found = self.check_tessera(words[at + 1:])
                elif re.match(r"(scripts|bench)/[\w./-]+\.(sh|py)$", name):
                    found = self.check_script(name, words[at + 1:])
                elif word.split("=")[0] in ("--preset", "--target"):
                    kind, _, value = word.partition("=")
                    value = value or next(iter(words[at + 1:]), "")
                    if value not in (self.presets if kind == "--preset" else self.targets):
                        found = [f"there is no {kind[2:]} {value}"]
                elif example := re.fullmatch(r"build/\w+/examples/(\w+)", name):
                    if example.group(1) not in self.targets:
                        found = [f"there is no example {example.group(1)}"]
                elif name.split("/")[0] in self.tops and "/" in name and not (ROOT / name).exists():
                    found = [f"there is no {name}"]
                for finding in found:
                    self.fail(page, block, finding)

    def fail(self, page, block, what):
        self.failures.append(f"{page}:{block.line}: {what}")

    def follow(self, page):
        found, wrong = blocks((ROOT / page).read_text(encoding="utf-8"))
        self.failures += [f"{page}:{line}: {what}" for line, what in wrong]
        self.read += 1
        fresh = False
        for block in found:
            if block.reason is not None:
                if not block.reason:
                    self.fail(page, block, "<!-- not run --> without a reason")
                self.check(page, block)
            else:
                if not fresh:
                    self.fresh()
                    fresh = True
                self.run(page, block)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="append", default=[])
    parser.add_argument("--list", action="store_true", help="print the blocks, and run none")
    given = parser.parse_args()
    chosen = given.page or pages()
    if given.list:
        for page in chosen:
            for block in blocks((ROOT / page).read_text(encoding="utf-8"))[0]:
                first = block.content.strip().splitlines()[0]
                print(f"{page}:{block.line}: {'check' if block.reason is not None else 'run  '} {first}")
        return 0
    trial = Trial(given.build.resolve(), given.folder.resolve())
    trial.lay_out()
    for page in chosen:
        trial.follow(page)
    for failure in trial.failures:
        print(failure)
    print(f"{trial.ran} blocks run, {trial.checked} checked, {trial.read} pages, {len(trial.failures)} failures")
    return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main())
