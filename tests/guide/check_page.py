#!/usr/bin/env python3
"""Follows a page of the documentation as a new user does, in an empty folder.

A fenced block with a file's name behind its language, such as ```cpp plain.cpp, is that file; blocks
of one name follow each other in it. The blocks ```console are run in order: each line with `$ ` is a
command, and the lines below it are what it prints, in this order. A line `...` stands for any lines.
What the page calls /where/you/installed/it is a copy that is installed from the folder of a build.

  check_page.py PAGE FOLDER BUILD [--without WORD WHY]...

--without leaves out the commands that contain WORD, and prints WHY. The status is 1 where a command
fails or prints something else.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

INSTALLED = "/where/you/installed/it"
ROOT = Path(__file__).resolve().parents[2]


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
            sys.exit(f"a block of commands begins with what is none: {line}")
        else:
            shown.append(line)
    if command:
        yield command, shown


def missing_line(shown, printed):
    """Returns the first line of `shown` that `printed` lacks at its place, or nothing."""
    at = 0
    anywhere = True  # a build prints before what it is asked for
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("--without", nargs=2, action="append", default=[])
    given = parser.parse_args()

    given.folder = given.folder.resolve()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    prefix = given.folder / "installed"
    run(f"cmake --install {given.build.resolve()} --prefix {prefix} >/dev/null", [], given.folder)
    text = given.page.read_text()
    files, ran = set(), 0
    for language, name, content in blocks(text):
        if name:
            with (given.folder / name).open("a") as file:
                file.write(content)
            files.add(name)
        elif language == "console":
            for command, shown in commands(content):
                left_out = [why for word, why in given.without if word in command]
                if left_out:
                    print(f"left out: {command}: {left_out[0]}")
                    continue
                run(command.replace(INSTALLED, str(prefix)), shown, given.folder)
                ran += 1
    if not files or not ran:
        sys.exit(f"{given.page} has {len(files)} files and {ran} commands")
    print(f"{len(files)} files, {ran} commands")


main()
