#!/usr/bin/env python3
"""Runs clang-tidy over many sources at once; scripts/lint.sh calls this.

Most of clang-tidy's time goes into the headers of a source. Sources that are compiled with the same
options are therefore included into one batch source, and clang-tidy sees their headers once. Sources
whose names collide with those before them in a batch are moved to a later one.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ("bench", "cmake", "examples", "include", "kernels", "src", "tests", "tools")
SOURCE_SUFFIXES = (".cpp", ".cu")
HEADER_SUFFIXES = (".hpp", ".cuh", ".h", ".inc")
ALL_SUFFIXES = SOURCE_SUFFIXES + HEADER_SUFFIXES
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
DIAGNOSTIC = re.compile(r"^(/[^:]+):(\d+):(\d+): (\w+(?: \w+)?): (.*)$")
CHECKS = re.compile(r" \[([\w.,-]+)\]$")

# Options that change neither what is parsed nor what is found: sources that differ only in them
# share a batch.
IRRELEVANT = re.compile(r"-(MM?D|g\d?|O\w|fPI[CE]|W.*)")

Source = collections.namedtuple("Source", "path options")


def members_of(root, build, path):
    """The sources that a generated source includes, or the source itself."""
    if not pathlib.Path(path).is_relative_to(build):
        return [path]
    if not pathlib.Path(path).is_file():
        return []
    return [root / name for name in INCLUDE.findall(pathlib.Path(path).read_text())
            if name.endswith(SOURCE_SUFFIXES)]


def read_commands(root, build):
    """Each source of the project with the options of its first compile command."""
    sources = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])[1:]
        options = []
        skip = False
        for word in words:
            if skip:
                skip = False
            elif word in ("-o", "-c", "-MF", "-MT", "-MQ"):
                skip = True
            elif not IRRELEVANT.fullmatch(word):
                options.append(word)
        for member in members_of(root, build, entry["file"]):
            path = pathlib.Path(member)
            if path.is_relative_to(root) and not path.is_relative_to(build):
                relative = str(path.relative_to(root))
                sources.setdefault(relative, Source(path, tuple(options)))
    return sources


def includers_of(header, includes):
    """Sources that include `header`, directly or, if none does, through the fewest headers."""
    seen = {header}
    level = [header]
    while level:
        users = [file for file, names in includes.items()
                 if file not in seen and any(matches(used, file, name)
                                             for used in level for name in names)]
        found = sorted(file for file in users if file.endswith(SOURCE_SUFFIXES))
        if found:
            stem = pathlib.Path(header).stem
            return sorted(found, key=lambda file: pathlib.Path(file).stem != stem)
        seen.update(users)
        level = users
    return []


def matches(used, user, name):
    if used.endswith("/" + name) or used == name:
        return True
    return os.path.normpath(os.path.join(os.path.dirname(user), name)) == used


def sources_of_change(root, changed, known, for_headers):
    """The changed sources, and at most `for_headers` more that include changed headers."""
    chosen = {file for file in changed if file in known}
    foreign = [file for file in changed if file.endswith(SOURCE_SUFFIXES) and file not in known]
    if foreign:
        print(f"note: not checked, since this build does not compile them: {' '.join(foreign)}")
    headers = [file for file in changed if file.endswith(HEADER_SUFFIXES)]
    if not headers:
        return sorted(chosen)
    files = subprocess.run(["git", "ls-files", *(f"*{suffix}" for suffix in ALL_SUFFIXES)],
                           cwd=root, check=True, capture_output=True, text=True).stdout.split()
    includes = {file: INCLUDE.findall((root / file).read_text())
                for file in files if (root / file).is_file()}
    unseen = []
    for header in headers:
        users = [file for file in includers_of(header, includes) if file in known]
        if chosen.intersection(users):
            continue
        if users and for_headers > 0:
            chosen.add(users[0])
            for_headers -= 1
        else:
            unseen.append(header)
    if unseen:
        print(f"note: not checked without --all: {' '.join(unseen)}")
    return sorted(chosen)


class Runner:
    def __init__(self, arguments, root, folder):
        self.arguments = arguments
        self.root = root
        self.folder = folder
        self.count = 0
        self.findings = set()
        self.broken = {}
        self.filter = f"^{re.escape(str(root))}/({'|'.join(FOLDERS)})/"

    def write_batch(self, sources):
        self.count += 1
        batch = self.folder / configuration_of(self.root, sources[0]) / f"batch_{self.count}.cpp"
        lines = [f'#include "{source.path}"  // NOLINT(bugprone-suspicious-include)\n'
                 for source in sources]
        batch.write_text("".join(lines))
        return batch

    def colliding(self, batch, sources):
        """Indices of the sources that do not compile after the sources before them, and the errors."""
        first = sources[0]
        done = subprocess.run(
            [self.arguments.compiler, *first.options, "-w", "-fsyntax-only", "-ferror-limit=0",
             "-fno-caret-diagnostics", "-fdiagnostics-show-note-include-stack", "-x", "c++", str(batch)],
            cwd=self.arguments.build, capture_output=True, text=True)
        if done.returncode == 0:
            return set(), ""
        # An error names one of the sources, or a header after "In file included from" lines.
        by_path = {str(source.path): index for index, source in enumerate(sources)}
        bad = set()
        inside = None
        for line in done.stderr.splitlines():
            stack = re.match(r"^In file included from ([^:]+):(\d+)", line)
            if stack:
                if stack.group(1) == str(batch):
                    inside = int(stack.group(2)) - 1
                elif stack.group(1) in by_path:
                    inside = by_path[stack.group(1)]
                continue
            place = DIAGNOSTIC.match(line)
            if place and "error" in place.group(4):
                index = by_path.get(place.group(1), inside)
                bad.add(len(sources) - 1 if index is None else index)
        return bad or {len(sources) - 1}, done.stderr

    def run_batch(self, sources):
        """Runs one batch; returns the sources that need another batch."""
        batch = self.write_batch(sources)
        later = []
        while True:
            bad, errors = self.colliding(batch, sources)
            if not bad:
                break
            if len(sources) == 1:
                self.broken[str(sources[0].path)] = errors
                return []
            bad.discard(0)
            if not bad:
                bad = {len(sources) - 1}
            later += [source for index, source in enumerate(sources) if index in bad]
            sources = [source for index, source in enumerate(sources) if index not in bad]
            batch = self.write_batch(sources)
        command = [self.arguments.tidy, "--quiet", f"--header-filter={self.filter}"]
        if self.arguments.checks:
            command.append(f"--checks={self.arguments.checks}")
        done = subprocess.run(
            [*command, str(batch), "--", *sources[0].options, "-x", "c++"],
            cwd=self.arguments.build, capture_output=True, text=True)
        self.collect(done, batch)
        return later

    def collect(self, done, batch):
        """Prints each finding once: every batch that includes a header repeats the header's findings."""
        key = None
        lines = []
        diagnostics = 0
        for line in done.stdout.splitlines():
            place = DIAGNOSTIC.match(line)
            if place and place.group(4) != "note":
                diagnostics += 1
                checks = CHECKS.search(line)
                text = checks.group(1).replace(",-warnings-as-errors", "") if checks else ""
                key = (place.group(1), int(place.group(2)), int(place.group(3)), text)
                if key in self.findings:
                    key = None
                    continue
                self.findings.add(key)
            if key is not None:
                lines.append(line.replace(f"{self.root}/", "") + "\n")
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        if done.returncode < 0 or (done.returncode != 0 and diagnostics == 0):
            self.broken[str(batch)] = done.stderr


def macros_of(source):
    """The macros that the options define, with their values; the default is 1, as in compilers."""
    options = [option[2:] for option in source.options if option.startswith("-D")]
    return dict((option if "=" in option else option + "=1").split("=", 1) for option in options)


def configuration_of(root, source):
    """The innermost folder around the source that has a .clang-tidy, relative to the root."""
    folder = next(folder for folder in source.path.parents if (folder / ".clang-tidy").is_file())
    return folder.relative_to(root)


def copy_configurations(root, folder):
    """Copies every .clang-tidy, so that a batch has the configuration of its sources."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard",
                             "*.clang-tidy"], cwd=root, check=True, capture_output=True, text=True)
    for file in listed.stdout.split():
        copy = folder / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, copy)


def batches_of(root, sources, size):
    """Groups sources with equal options. A macro that one source defines is defined for its whole batch."""
    groups = collections.defaultdict(list)  # configuration, options without macros -> [(macros, sources)]
    for source in sources:
        macros = macros_of(source)
        options = tuple(option for option in source.options if not option.startswith("-D"))
        group = groups[configuration_of(root, source), options]
        for shared, members in group:
            if all(shared.get(name, value) == value for name, value in macros.items()):
                shared.update(macros)
                members.append(source)
                break
        else:
            group.append((macros, [source]))
    for (_, options), parts in groups.items():
        for macros, members in parts:
            defined = [f"-D{name}={value}" for name, value in sorted(macros.items())]
            together = [source._replace(options=(*defined, *options)) for source in members]
            count = -(-len(together) // size)
            for index in range(count):
                yield together[index * len(together) // count:(index + 1) * len(together) // count]


def run_all(runner, sources, jobs, size):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while sources:
            later = []
            for rest in pool.map(runner.run_batch, list(batches_of(runner.root, sources, size))):
                later += rest
            sources = later


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder with compile_commands.json")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--tidy", required=True)
    parser.add_argument("--checks", help="in addition to those of .clang-tidy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=24, help="sources per batch")
    parser.add_argument("--for-headers", type=int, default=16,
                        help="most sources to check only because they include a changed header")
    parser.add_argument("--all", action="store_true", help="every source that has a compile command")
    parser.add_argument("changed", nargs="*", help="changed files, relative to the project's root")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    root = pathlib.Path(__file__).resolve().parent.parent
    known = read_commands(root, arguments.build)
    chosen = sorted(known) if arguments.all else sources_of_change(
        root, arguments.changed, known, arguments.for_headers)
    with tempfile.TemporaryDirectory(dir=arguments.build, prefix="tidy-") as folder:
        copy_configurations(root, pathlib.Path(folder))
        runner = Runner(arguments, root, pathlib.Path(folder))
        run_all(runner, [known[file] for file in chosen], arguments.jobs, arguments.batch)
    for path, errors in sorted(runner.broken.items()):
        print(f"error: {path} does not compile:\n{errors}")
    (arguments.build / "tidied.txt").write_text(f"{len(chosen)} sources\n")
    if runner.findings:
        print(f"{len(runner.findings)} findings in {len(chosen)} sources")
    return 1 if runner.findings or runner.broken else 0


if __name__ == "__main__":
    sys.exit(main())
