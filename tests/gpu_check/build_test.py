#!/usr/bin/env python3
"""Tests that part build of scripts/gpu_check.sh compiles every file that it then installs. Configures as the part
does, but with Ninja, which lists the commands of the part's target; compiles nothing.

  build_test.py FOLDER
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from made_up import ROOT  # finds the script's modules

import builds


def output_of(*command):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nstatus {done.returncode} of {command[0]}")
    return done.stdout


def main():
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    build = folder / "build"
    with_ninja = SimpleNamespace(has=lambda name: name == "ninja")
    call = SimpleNamespace(build=build, bundle=None, python="python3", programs=with_ninja)
    output_of(*builds.configuration(call, "80"))
    commands = output_of("ninja", "-C", build, "-t", "commands", builds.TARGET)
    files = {name for script in build.rglob("cmake_install.cmake")
             for name in re.findall(rf'"({re.escape(str(build))}/[^"$]*)"', script.read_text())}
    missing = sorted(name for name in files
                     if not Path(name).exists() and str(Path(name).relative_to(build)) not in commands)
    if missing:
        sys.exit("installed, but made by no target that part build names:\n" + "\n".join(missing))
    if "libtessera_cuda.so" not in commands:
        sys.exit("the module is not made")
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
