#!/usr/bin/env python3
"""Mutants of the library: small faults that the tests must find (docs/fuzzing.md).

  scripts/mutants.py draw --seed 13 --count 40 --build DIR --out LIST
  scripts/mutants.py run LIST --build DIR --out RESULTS [--only 3,7] [--jobs N]
  scripts/mutants.py compare BEFORE AFTER
  scripts/mutants.py table LIST RESULTS

`draw` chooses mutants of the sources that DIR compiles for the CPU. `run` needs a scratch copy of the
sources with a build folder DIR of its own: it edits one source at a time and restores it.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys
import time

LIMIT_S = 120.0  # for all tests of one mutant
KINDS = ("operator", "constant", "condition", "event", "order")

# Sources that CPU tests do not compile or do not run.
ELSEWHERE = re.compile(r"cuda|nccl|/mpi/|/no_|_no_|avx512")
# Statements without behaviour at run time, and checks for the library's own bugs.
SKIPPED_LINE = re.compile(r"^\s*#|static_assert|TESSERA_ASSERT|^\s*(template|using|namespace|friend)\b")

OPERATORS = {
    " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
    " + ": " - ", " - ": " + ", " * ": " / ", " / ": " * ", " % ": " / ", " += ": " -= ",
    " -= ": " += ", " && ": " || ", " || ": " && ", " & ": " | ", " << ": " >> ",
    "std::min(": "std::max(", "std::max(": "std::min(", "++": "--",
}
CONSTANT = re.compile(r"(?<![\w.\"'])(\d+\.\d*(?:e-?\d+)?|\d+)(?=[fFuU]?[^\w.\"'])|\b(true|false)\b")
EVENT = re.compile(
    r"(?:\b[\w\]\[()]+(?:\.|->))*\b(?:wait|wait_for|wait_until|record|settle|notify_one|notify_all|"
    r"wait_to_read|wait_until_idle|wait_for_mark|wait_for_all|synchronize)\([^;{}]*\);")
RANK = re.compile(r"(?<![\w.>])((?:\w+(?:\.|->))*)(rank(?:\(\)|_)?)(?=[\])},;]| [-+*/<=]| \?)")
PAIR = re.compile(r"(?<=[(,{ ])([\w.]+(?:\(\)|\[\w+\])?), ([\w.]+(?:\(\)|\[\w+\])?)(?=[),}])")
ENDS = re.compile(r"(?<=\.)(begin|end|first|last|front|back)\b(\(\))?(?![\w(])")
OTHER_END = {"begin": "end", "end": "begin", "first": "last", "last": "first",
             "front": "back", "back": "front"}
RANKS = re.compile(r"rank|peer|root|source|from|to\b|first|last|begin|end|target|destination")


def code_of(text):
    """`text` with comments and the contents of literals blanked, each character at its place."""
    literal = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])\'',
                         re.DOTALL)
    return literal.sub(lambda found: re.sub(r"[^\n]", "\0", found.group()), text)


def closing(code, at):
    """The index of the parenthesis that closes the one at `at`, or -1."""
    depth = 0
    for index in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[index], 0)
        if depth == 0:
            return index
    return -1


def operators(code):
    for old, new in OPERATORS.items():
        at = code.find(old)
        while at >= 0:
            yield at, at + len(old), new
            at = code.find(old, at + 1)


def constants(code):
    for found in CONSTANT.finditer(code):
        text = found.group()
        if text in ("true", "false"):
            new = "false" if text == "true" else "true"
        elif "." in text:
            new = "1.0" if float(text) == 0 else repr(float(text) * 2)
        else:
            new = str(int(text) + 1)
        yield found.start(), found.end(), new


def conditions(code):
    for found in re.finditer(r"\b(?:if|while) \(", code):
        end = closing(code, found.end() - 1)
        inner = code[found.end():end]
        if end > 0 and ";" not in inner:
            yield found.end(), end, None  # negated
    for found in re.finditer(r"(?:[^=!<>]= |return |\()([\w.!()\[\]>-]+(?: (?:==|!=|<|>|<=|>=) [\w.()]+)?) \? ", code):
        if found.group(1).count("(") == found.group(1).count(")"):
            yield found.start(1), found.end(1), None


def events(code):
    for found in EVENT.finditer(code):
        if "trace::" in found.group():
            continue  # a line that calls the recorder
        before = code[:found.start()].rstrip()
        if before == "" or before[-1] in "{};)":
            yield found.start(), found.end(), ";" if before.endswith(")") or before == "" else ""


def orders(code):
    if re.search(r"\bfor \(", code):
        return
    for found in RANK.finditer(code):
        owner, name = found.groups()
        yield found.start(), found.end(), f"({owner}{name.replace('rank', 'size')} - 1 - {owner}{name})"
    for found in PAIR.finditer(code):
        one, other = found.groups()
        if one != other and RANKS.search(one) and RANKS.search(other) and not one.endswith("begin()"):
            yield found.start(), found.end(), f"{other}, {one}"
    for found in ENDS.finditer(code):
        if found.group(1) in ("begin", "end") and found.group(2):
            continue  # iterators
        yield found.start(), found.end(), OTHER_END[found.group(1)] + (found.group(2) or "")


FINDERS = dict(zip(KINDS, (operators, constants, conditions, events, orders)))


def layer_of(path):
    parts = path.split("/")
    if parts[0] == "kernels":
        return "kernels"
    return "control" if path.startswith("src/comm/control/") else parts[1]


def sites_of(root, path):
    """Every mutant of the file: kind, line, and that line before and after."""
    text = (root / path).read_text()
    lines = text.split("\n")
    for number, code in enumerate(code_of(text).split("\n"), 1):
        line = lines[number - 1]
        if SKIPPED_LINE.search(code):
            continue
        for kind in KINDS:
            for start, end, new in FINDERS[kind](code):
                if new is None:
                    new = f"!({line[start:end]})"
                mutated = line[:start] + new + line[end:]
                yield {"file": path, "line": number, "kind": kind, "original": line.strip(),
                       "mutated": mutated.strip()}


def library_files(root):
    out = subprocess.run(["git", "ls-files", "src", "kernels"], cwd=root, check=True,
                         capture_output=True, text=True).stdout.split()
    return [path for path in out if path.endswith((".cpp", ".hpp")) and not ELSEWHERE.search(path)]


class Build:
    """A configured build folder and its sources."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        cache = (self.folder / "CMakeCache.txt").read_text()
        self.root = pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", cache, re.M)[1])

    def commands(self):
        """The command that compiles each source of the library."""
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        found = {}
        for entry in entries:
            path = os.path.relpath(entry["file"], self.root)
            if path.startswith(("src/", "kernels/")) and "/tessera.dir/" in entry["command"]:
                found[path] = entry["command"]
        return found

    def targets(self, layer):
        """The test programs of `layer`: test_<layer>, or all test_<layer>_*."""
        listed = subprocess.run(["cmake", "--build", self.folder, "--target", "help"], check=True,
                                capture_output=True, text=True).stdout
        names = set(re.findall(r"\btest_\w+\b", listed))
        whole = f"test_{layer}"
        return [whole] if whole in names else sorted(n for n in names if n.startswith(whole + "_"))

    def make(self, targets, jobs):
        return subprocess.run(["cmake", "--build", self.folder, "--parallel", str(jobs), "--target",
                               *targets], capture_output=True, text=True)

    def program(self, target):
        found = [path for path in self.folder.rglob(target) if path.is_file() and os.access(path, os.X_OK)]
        if not found:
            sys.exit(f"error: {target} is not in {self.folder}")
        return found[0]


# ---- draw

def including(root, path, sources):
    """A source that includes the header `path`, directly or indirectly."""
    reached, wave = {path}, {path}
    texts = {p: (root / p).read_text() for p in sources}
    while wave:
        names = [re.sub(r"^src/", "", p) for p in wave]
        wave = {p for p, text in texts.items() if p not in reached and
                any(f'"{name}"' in text or
                    (os.path.dirname(p) == os.path.dirname(w) and f'"{os.path.basename(w)}"' in text)
                    for name, w in zip(names, wave))}
        reached |= wave
        ends = sorted(p for p in wave if p.endswith(".cpp"))
        if ends:
            return ends[0]
    return None


def compiles(build, commands, mutant, files):
    source = mutant["file"]
    if source.endswith(".hpp"):
        source = including(build.root, source, [f for f in files if f in commands or f.endswith(".hpp")])
    if source not in commands:
        return False
    command = [word for word in shlex.split(commands[source]) if "ccache" not in word]
    at = command.index("-o")
    command[at:at + 2] = []
    with applied(build.root, mutant):
        return subprocess.run(command + ["-fsyntax-only", "-Werror"], cwd=build.folder,
                              capture_output=True).returncode == 0


def draw(args):
    build = Build(args.build)
    commands = build.commands()
    files = library_files(build.root)
    chance = random.Random(args.seed)
    pools = {}
    for path in files:
        for site in sites_of(build.root, path):
            pools.setdefault((site["kind"], layer_of(path)), []).append(site)
    for pool in pools.values():
        chance.shuffle(pool)
    layers = sorted({layer for _, layer in pools})
    chance.shuffle(layers)
    size_of = {name: sum(len(pool) for (_, layer), pool in pools.items() if layer == name)
               for name in layers}
    drawn_of_layer = dict.fromkeys(layers, 0)
    used_files = set()
    drawn = []
    kinds = list(KINDS)
    while len(drawn) < args.count:
        kind = kinds[len(drawn) % len(kinds)]
        having = [layer for layer in layers if pools.get((kind, layer))]
        # Draws more often from larger layers, but from small ones too.
        layer = min(having, key=lambda name: (drawn_of_layer[name] + 1) / size_of[name] ** 0.5)
        pool = pools[kind, layer]
        fresh = [site for site in pool if site["file"] not in used_files]
        site = (fresh or pool)[0]
        pool.remove(site)
        if not compiles(build, commands, site, files):
            print(f"does not compile: {site['file']}:{site['line']}  {site['mutated']}", flush=True)
            continue
        drawn_of_layer[layer] += 1
        used_files.add(site["file"])
        drawn.append({"id": len(drawn) + 1, **site})
        print(f"{len(drawn):2} {kind:9} {site['file']}:{site['line']}  {site['mutated']}", flush=True)
    drawn_at = subprocess.run(["git", "rev-parse", "HEAD"], cwd=build.root, capture_output=True,
                              text=True).stdout.strip()
    candidates = {kind: sum(len(pool) for (k, _), pool in pools.items() if k == kind) for kind in KINDS}
    write(args.out, {"seed": args.seed, "commit": drawn_at, "candidates_left": candidates,
                     "mutants": drawn})


# ---- apply

def places(text, line):
    """The spans of `line` in `text`, however it is wrapped."""
    pattern = r"\s*".join(re.escape(c) for c in line if not c.isspace())
    return [found.span() for found in re.finditer(pattern, text)]


def locate(root, mutant):
    """The file and the span of the mutant's line, even if it has moved."""
    path = mutant["file"]
    if (root / path).exists():
        text = (root / path).read_text()
        found = places(text, mutant["original"])
        if found:
            return path, min(found, key=lambda s: abs(text.count("\n", 0, s[0]) + 1 - mutant["line"]))
    for other in library_files(root):
        found = places((root / other).read_text(), mutant["original"])
        if len(found) == 1 and layer_of(other) == layer_of(path):
            return other, found[0]
    return None


class applied:
    """A context in which the source has the fault."""

    def __init__(self, root, mutant):
        found = locate(root, mutant)
        if not found:
            raise LookupError(f"{mutant['file']}: not found: {mutant['original']}")
        path, (start, end) = found
        self.path = root / path
        self.text = self.path.read_text()
        self.mutated = self.text[:start] + mutant["mutated"] + self.text[end:]

    def __enter__(self):
        self.path.write_text(self.mutated)

    def __exit__(self, *_):
        self.path.write_text(self.text)


# ---- run

def run_program(program, limit_s, arguments=()):
    """Runs a test program. Returns its verdict, last case, seconds and last output."""
    began = time.monotonic()
    process = subprocess.Popen([program, "--gtest_fail_fast", "--gtest_color=no", *arguments],
                               cwd=program.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", start_new_session=True)
    verdict = None
    try:
        out, _ = process.communicate(timeout=max(limit_s, 0.1))
    except subprocess.TimeoutExpired:
        verdict = "timeout"
    end_group(process)
    if verdict:
        out, _ = process.communicate()
    seconds = time.monotonic() - began
    failed = re.findall(r"^\[  FAILED  \] ([\w/.]+)", out, re.M)
    running = re.findall(r"^\[ RUN      \] (\S+)", out, re.M)
    if not verdict:
        verdict = "passed" if process.returncode == 0 else "failed" if failed else "crashed"
    case = None if verdict == "passed" else failed[0] if failed else running[-1] if running else None
    return {"program": program.name, "verdict": verdict, "case": case, "seconds": round(seconds, 1),
            "tail": "" if verdict == "passed" else out[-600:]}


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def programs_of(build, layer):
    return [*build.targets(layer), *build.targets("parity")]


def run_tests(build, names, limit_s):
    """Runs the layer's programs, then parity, up to the first that does not pass."""
    ran = []
    for name in names:
        left = limit_s - sum(run["seconds"] for run in ran)
        ran.append(run_program(build.program(name), left))
        if ran[-1]["verdict"] != "passed":
            break
    return ran


def calibrate(build, names, jobs):
    """Runs each program without a mutant; returns the seconds of each."""
    made = build.make(names, jobs)
    if made.returncode:
        sys.exit(made.stdout[-4000:] + made.stderr[-4000:])
    seconds = {}
    for name in names:
        ran = run_program(build.program(name), 600)
        if ran["verdict"] != "passed":
            sys.exit(f"error: without a mutant {name} {ran['verdict']}: {ran['case']}\n{ran['tail']}")
        seconds[name] = ran["seconds"]
        print(f"without a mutant: {name} {ran['seconds']} s", flush=True)
    return seconds


def judge(ended, unmutated_s, limit_s):
    """Whether the tests found the mutant. A hang counts only if the tests without a mutant take less
    than half of the limit."""
    if ended == "passed":
        return "survived"
    if ended == "timeout" and unmutated_s >= limit_s / 2:
        return "too slow"
    return "found"


def run(args):
    build = Build(args.build)
    listed = json.loads(pathlib.Path(args.list).read_text())
    only = {int(n) for n in args.only.split(",")} if args.only else None
    mutants = [m for m in listed["mutants"] if only is None or m["id"] in only]
    lost = [m["id"] for m in mutants if not locate(build.root, m)]
    if lost:
        sys.exit(f"error: the lines of mutants {lost} are not in {build.root}: update them in {args.list}")
    results = {"list": os.path.basename(args.list), "unmutated_s": {}, "mutants": {}}
    if args.out and os.path.exists(args.out):
        results = json.loads(pathlib.Path(args.out).read_text())
    layers = sorted({layer_of(m["file"]) for m in mutants})
    new = {n for layer in layers for n in programs_of(build, layer)} - set(results["unmutated_s"])
    if new:
        results["unmutated_s"].update(calibrate(build, sorted(new), args.jobs))
    for mutant in mutants:
        result, tail = run_one(build, mutant, results["unmutated_s"], args.jobs, args.limit)
        kept = results["mutants"].get(str(mutant["id"]), {})
        results["mutants"][str(mutant["id"])] = kept | result  # keeps a recorded reason
        print(f"{mutant['id']:2} {result['verdict']:9} {result['by']:60} {result['seconds']:6} s  "
              f"{mutant['file']}:{mutant['line']}", flush=True)
        if args.verbose:
            print(tail, flush=True)
        write(args.out, results)
    verdicts = [r["verdict"] for r in results["mutants"].values()]
    print(f"found {verdicts.count('found')} of {len(verdicts)}")


def run_one(build, mutant, unmutated_s, jobs, limit_s):
    names = programs_of(build, layer_of(mutant["file"]))
    with applied(build.root, mutant):
        made = build.make(names, jobs)
        if made.returncode:
            return {"verdict": "no build", "by": "", "seconds": 0}, made.stdout[-2000:]
        ran = run_tests(build, names, limit_s)
    last = ran[-1]
    by = "" if last["verdict"] == "passed" else f"{last['program']}: {last['case']} ({last['verdict']})"
    # Judges a hang by the unmutated seconds of the programs that ran: those before it passed.
    verdict = judge(last["verdict"], sum(unmutated_s[run["program"]] for run in ran), limit_s)
    return {"verdict": verdict, "by": by, "seconds": round(sum(r["seconds"] for r in ran), 1)}, last["tail"]


def compare(args):
    """Prints the mutants that were found before and are not found after."""
    before, after = (json.loads(pathlib.Path(p).read_text())["mutants"] for p in (args.before, args.after))
    missed = [n for n, r in before.items()
              if r["verdict"] == "found" and after.get(n, {}).get("verdict") != "found"]
    count = lambda results: sum(r["verdict"] == "found" for r in results.values())
    print(f"found before: {count(before)}, after: {count(after)}; found before and missed after: "
          f"{', '.join(missed) or 'none'}")
    sys.exit(1 if missed else 0)


def table(args):
    """Prints the results as a Markdown table."""
    listed = json.loads(pathlib.Path(args.list).read_text())
    results = json.loads(pathlib.Path(args.results).read_text())["mutants"]
    print("| | mutant | change | result |\n|---|---|---|---|")
    for mutant in listed["mutants"]:
        result = results[str(mutant["id"])]
        changed = " → ".join(f"`{text}`" for text in difference(mutant["original"], mutant["mutated"]))
        told = f"`{result['by']}`" if result["verdict"] == "found" else result["verdict"]
        told += f"; {result['reason']}" if "reason" in result else ""
        row = f"| {mutant['id']} | {mutant['file']}:{mutant['line']} | {changed} | {told} |"
        print(row.replace("||", "\\|\\|"))


def difference(before, after):
    """The parts in which two lines differ, with the words around them."""
    first = os.path.commonprefix([before, after])
    last = os.path.commonprefix([before[len(first):][::-1], after[len(first):][::-1]])
    begin = max(first.rfind(" ", 0, max(len(first) - 10, 0)), 0)
    cut = lambda text: text[begin:len(text) - max(len(last) - 12, 0)].strip() or "(nothing)"
    return cut(before), cut(after)


def write(path, value):
    if path:
        pathlib.Path(path).write_text(json.dumps(value, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("draw")
    command.add_argument("--seed", type=int, required=True)
    command.add_argument("--count", type=int, default=40)
    command.add_argument("--build", required=True)
    command.add_argument("--out", required=True)
    command.set_defaults(call=draw)
    command = commands.add_parser("run")
    command.add_argument("list")
    command.add_argument("--build", required=True)
    command.add_argument("--out")
    command.add_argument("--only", help="numbers of mutants, separated by commas")
    command.add_argument("--jobs", type=int, default=2, help="parallel jobs of the build")
    command.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for all tests of a mutant")
    command.add_argument("--verbose", action="store_true", help="show what tests printed last")
    command.set_defaults(call=run)
    command = commands.add_parser("compare")
    command.add_argument("before")
    command.add_argument("after")
    command.set_defaults(call=compare)
    command = commands.add_parser("table")
    command.add_argument("list")
    command.add_argument("results")
    command.set_defaults(call=table)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
