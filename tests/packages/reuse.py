"""A compiler launcher that takes objects from a build that compiled them already.

    reuse.py OTHER_BUILD FOLDER COMPILER ARGUMENTS...

Tessera's build in FOLDER of the current one ("" for all of it) may differ from OTHER_BUILD in what it
links, installs or is part of, while most files are compiled by the same commands. Where the command is
the same but for the folders, its object is copied; any other file is compiled. What was done is noted
in reuse.log.
"""

import json
import os
import shlex
import shutil
import sys


def without_outputs(arguments, build):
    """The command, but for the files that it writes, with paths below `build` as relative ones."""
    kept = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("-o", "-MF", "-MT"):
            skip = True
        elif argument != "-MD":
            kept.append(argument.replace(build + "/", ""))
    return kept


def other_command(other, output):
    """How `output` of the other build was compiled; empty if it was not."""
    with open(os.path.join(other, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            if f" -o {output} " in entry["command"] + " ":
                return shlex.split(entry["command"])
    return []


def main():
    other, folder, *command = sys.argv[1:]
    build = os.path.join(os.getcwd(), folder) if folder else os.getcwd()
    output = command[command.index("-o") + 1] if "-o" in command else ""
    relative = os.path.relpath(output, folder) if folder else output
    theirs = other_command(other, relative) if relative else []
    same = without_outputs(theirs, other) == without_outputs(command, build)
    made = os.path.join(other, relative)
    verdict = "reused" if same and os.path.exists(made) else "compiled"
    with open("reuse.log", "a", encoding="utf-8") as log:
        log.write(f"{verdict} {relative}\n")
    if verdict == "compiled":
        os.execvp(command[0], command)
    if "-MF" in command:
        with open(command[command.index("-MF") + 1], "w", encoding="utf-8") as dependencies:
            dependencies.write(f"{output}:\n")
    shutil.copyfile(made, output)


main()
