#!/usr/bin/env python3
"""Follows pages of the documentation as a new user does, in an empty folder.

A fenced block with a file's name behind its language, such as ```cpp plain.cpp, is that file; blocks
of one name follow each other in it. A block ```cpp or ```c without a name is a piece of one of the
folder's files, to the letter. The blocks ```console are run in order: each line with `$ ` is a
command, and the lines below it are its output, in this order. A line `...` stands for any lines.
/path/to/tessera is the clone that the page is in, /where/you/installed/it a copy that is installed
from the folder of a build. A page continues with the files of the pages before it.

  check_page.py PAGE... FOLDER BUILD [--without WORD WHY]...

FOLDER is new, empty or of an earlier run, and is emptied.

--without leaves out the commands that contain WORD, and prints WHY. The status is 1 where a command
fails or prints something else, or where a piece is in no file.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

INSTALLED = "/where/you/installed/it"
CLONE = "/path/to/tessera"
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import repository  # noqa: E402


def blocks(text):
    """Yields (language, name, content) of the fenced blocks."""
    for match in re.finditer(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield match.groups()


def commands(content):
    """Yields (command, lines that it prints)."""
    command, shown = None, []
    for line in content.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        elif command is None:
            sys.exit(f"a block of commands does not begin with one: {line}")
        else:
            shown.append(line)
    if command:
        yield command, shown


def missing_line(shown, printed):
    """Returns the first line of `shown` that `printed` lacks at its place, or nothing."""
    at = 0
    anywhere = True  # a build prints other lines first
    for line in shown:
        if line == "...":
            anywhere = True
            continue
        found = [i for i in range(at, len(printed)) if printed[i] == line]
        if not found or not (anywhere or found[0] == at):
            return line
        at = found[0] + 1
        anywhere = False
    return None


def run(command, shown, folder):
    as_found = re.sub(r"^mpirun ", f"{ROOT}/scripts/mpirun.sh ", command)
    done = subprocess.run(["bash", "-c", as_found], cwd=folder, text=True, timeout=500,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"$ {command}\n{done.stdout}", end="", flush=True)
    if done.returncode != 0:
        sys.exit(f"status {done.returncode}")
    missing = missing_line(shown, done.stdout.splitlines())
    if missing is not None:
        sys.exit(f"the page shows what the command does not print:\n{missing}")


def follow(page, folder, prefix, left_out):
    """Makes the files of `page` and runs its commands. Returns the numbers of files, commands, pieces."""
    files, ran, pieces = set(), 0, 0
    for language, name, content in blocks(page.read_text()):
        if name:
            with (folder / name).open("a") as file:
                file.write(content)
            files.add(name)
        elif language in ("c", "cpp"):
            if not any(content in file.read_text() for file in folder.iterdir() if file.is_file()):
                sys.exit(f"{page} shows what no file of the folder has:\n{content}")
            pieces += 1
        elif language == "console":
            for command, shown in commands(content):
                reasons = [why for word, why in left_out if word in command]
                if reasons:
                    print(f"left out: {command}: {reasons[0]}")
                    continue
                run(command.replace(INSTALLED, str(prefix)).replace(CLONE, str(ROOT)), shown, folder)
                ran += 1
    return len(files), ran, pieces


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", type=Path, nargs="+", metavar="page")
    parser.add_argument("folder", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("--without", nargs=2, action="append", default=[])
    given = parser.parse_args()

    given.folder = given.folder.resolve()
    # Emptied only after the check that an earlier run made it.
    repository.claim(given.folder, "guide", ROOT, given.build)
    shutil.rmtree(given.folder)
    repository.claim(given.folder, "guide")
    prefix = given.folder / "installed"
    run(f"cmake --install {given.build.resolve()} --prefix {prefix} >/dev/null", [], given.folder)
    for page in given.pages:
        files, ran, pieces = follow(page, given.folder, prefix, given.without)
        if not ran:
            sys.exit(f"{page} has no commands")
        print(f"{page.name}: {files} files, {ran} commands, {pieces} pieces")


main()
