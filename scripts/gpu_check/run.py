"""Runs the commands of a part, and keeps what they print, what they measured and how it is judged."""

import contextlib
import datetime
import hashlib
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import document
from parts import PARTS

NO_TIME = 124


def told(value, otherwise="none"):
    """A number as the page shows it."""
    if value is None:
        return otherwise
    return value if isinstance(value, str) else f"{value:.6g}"


def quotient(a, b):
    """a / b with four digits; None if there is none."""
    return float(f"{a / b:.4g}") if a is not None and b else None


class Programs:
    """The programs of this machine. Tests have a double of it."""

    clock = staticmethod(time.monotonic)

    @staticmethod
    def has(name):
        return shutil.which(name) is not None

    @staticmethod
    def ask(*command):
        """What a program prints; nothing if it fails."""
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", check=True)
            return done.stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    @staticmethod
    def run(command, seconds, log, shown):
        """Runs a command into the file `log`, and prints its output if it is to be `shown`; returns its status, 124
        or 137 if it was ended after `seconds`."""
        limited = ["timeout", "--kill-after=10", str(seconds), *command]
        with open(log, "wb") as file, open(log, "rb") as output, subprocess.Popen(
                limited, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT) as process:
            ended = False
            while not ended:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                    ended = True
                block = output.read()
                if shown and block:
                    sys.stdout.buffer.write(block)
                    sys.stdout.flush()
        return process.returncode if process.returncode >= 0 else 128 - process.returncode


class NotMeasured(Exception):
    """A bar cannot be judged; says why, and by which command."""

    def __init__(self, why, command=""):
        super().__init__(why)
        self.command = command


class Result(NamedTuple):
    """What came of a command."""

    status: int
    log: str  # its output; empty if there was no time to run it
    shown: str  # the command as the page shows it

    @property
    def last(self):
        return (self.log.splitlines() or [""])[-1]

    def number(self, pattern):
        """The number that the pattern's group matches in its output; None if there is none."""
        found = re.search(pattern, self.log, re.M)
        return float(found[1]) if found else None

    def needed(self, before=""):
        """Raises NotMeasured if it failed."""
        if self.status != 0:
            raise NotMeasured(before + self.reason, self.shown)
        return self

    @property
    def reason(self):
        """Why it gave no figure."""
        reasons = {0: "it printed none", 3: "it does not fit the card's memory", NO_TIME: "there was no time for it"}
        return reasons.get(self.status, f"it failed, status {self.status}")


class Part:
    """A part of the check while it runs: its section of the page, its bars and its figures."""

    def __init__(self, call, name):
        self.call, self.name, self.about = call, name, PARTS[name]
        self.began = call.programs.clock()
        self.deadline = min(self.began + call.part_seconds, call.ends)
        self.bars = {key: {"id": key, "bar": text, "verdict": "not measured", "figure": "the part ended before it",
                           "command": ""} for key, text in self.about.bars.items()}
        self.figures, self.samples, self.section = {}, [], []
        self.commands = self.failed = self.cut = 0
        self.timed = False  # whether the card's clocks are read before and after each command
        self.done = call.work / "done" / name

    # --- What it says ------------------------------------------------------------------------------

    def write(self, text):
        self.section.append(self.call.plain(text) + "\n")

    def note(self, text):
        self.write(text)
        print(self.call.plain(text), flush=True)

    def table(self, head, rows):
        self.note("\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}",
                             *(f"| {' | '.join(map(str, row))} |" for row in rows)]))

    def fails(self, what):
        self.failed += 1
        self.note(f"**Failed:** {what}")

    def out_of_time(self, what):
        """Counts a command that the deadline stopped or kept from running."""
        self.cut += 1
        self.note(f"No time was left for this, or for the end of it: `{what}`")

    def figure(self, name, shape, value, unit, bar=None, **more):
        """Records a number for the size `shape`; `bar` is the id of the bar that judges it."""
        if value is None or not abs(value) < document.MOST:
            return
        value = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
        figure = {"name": name, "shape": shape, "value": value, "unit": unit, "bar": bar, **more}
        self.figures[document.key_of(figure)] = figure

    def judge(self, bar, verdict, figure, command=""):
        self.bars[bar].update(verdict=verdict, figure=self.call.plain(figure), command=self.call.plain(command))
        print(f"{verdict}: {self.bars[bar]['bar']}: {figure}", flush=True)

    def at_least(self, bar, value, least, text, command="", best=False):
        """Judges a figure of speed. `best`: it is the best of several commands, so that a miss is none if the part had
        no time for one of them."""
        if value is None:
            self.judge(bar, "not measured", text, command)
        elif best and self.cut and value < least:
            self.judge(bar, "not measured", f"not all was run: {text}", command)
        elif self.call.emulated:
            self.judge(bar, "measured", f"{text} (emulated: means nothing)", command)
        else:
            self.judge(bar, "met" if value >= least else "NOT met", text, command)

    def at_most(self, bar, value, most, text, command=""):
        self.at_least(bar, None if value is None else -value, -most, text, command)

    @contextlib.contextmanager
    def judging(self, *bars):
        """Judges the bars as not measured where a command that they need fails."""
        try:
            yield
        except NotMeasured as why:
            for bar in bars:
                self.judge(bar, "not measured", str(why), why.command)

    def measured(self, bar, result, text, otherwise=None):
        """A figure without a bar: `text`, or why there is none."""
        self.judge(bar, "measured" if text else "not measured", text or otherwise or result.reason, result.shown)

    # --- What it runs ------------------------------------------------------------------------------

    def left(self):
        return int(self.deadline - self.call.programs.clock())

    def mark(self, command):
        """The file that says that a command is done."""
        return self.done / f"{hashlib.sha1(shlex.join(map(str, command)).encode()).hexdigest()[:16]}.json"

    def is_done(self, command, makes=()):
        """The status and the clocks of a command that an earlier call ran; None if it has to run."""
        if not self.mark(command).exists():
            return None
        record = json.loads(self.mark(command).read_text())
        return record if record["status"] != 0 or all(map(os.path.exists, makes)) else None

    def keep(self, lines, *command, allowed=(), makes=(), seconds=None):
        """Runs a command, shows its output, and adds the last `lines` of it to the page, as Markdown if that is "table".
        A status counts as a failure if it is neither 0 nor `allowed`. `makes` are files that only this command writes.
        `seconds` limits it beside the deadline of the part. What an earlier call did is not done again."""
        command = [str(word) for word in command]
        shown = self.call.plain(shlex.join(command))
        self.commands += 1
        log = self.call.work / "logs" / f"{self.name}-{self.commands}.log"
        mark, record = self.mark(command), self.is_done(command, makes)
        if record:
            print(f"(done before) $ {shown}")
            log = mark.with_suffix(".log")
        else:
            for stale in (mark, mark.with_suffix(".log"), *makes):
                Path(stale).unlink(missing_ok=True)
            left = self.left()
            if left < 5:
                self.out_of_time(shown)
                return Result(NO_TIME, "", shown)
            record = self.run(command, shown, log, min(left, seconds or left), allowed, mark)
        status, text = record["status"], log.read_text(errors="replace")
        self.write(self.on_page(lines, record, text, shown))
        if record["late"]:
            self.out_of_time(shown)
        elif status != 0 and status not in allowed:
            self.fails(f"status {status} of `{shown}`")
        return Result(status, text, shown)

    def run(self, command, shown, log, seconds, allowed, mark):
        clocks = self.call.machine.clocks() if self.timed else ""
        print(f"$ {shown}", flush=True)
        began = self.call.programs.clock()
        status = self.call.programs.run(command, seconds, log, shown=True)
        late = ran_out(status, self.call.programs.clock() - began, seconds)
        if clocks:
            clocks = f"clocks before: {clocks}; after: {self.call.machine.clocks()}"
        record = {"status": NO_TIME if late else status, "clocks": clocks, "late": late}
        if not late and (status == 0 or status in allowed):
            shutil.copy(log, mark.with_suffix(".log"))
            mark.write_text(json.dumps(record))
        return record

    @staticmethod
    def on_page(lines, record, text, shown):
        status, all_lines = record["status"], text.splitlines()
        if lines == "table" and status == 0:
            page = f"```\n$ {shown}\n```\n\n{text}"
        else:
            most = 20 if lines == "table" else lines
            last = [*(["..."] if len(all_lines) > most else []), *all_lines[-most:]]
            page = "\n".join(["```", f"$ {shown}", *last, *([f"(status {status})"] if status else []), "```"])
        return f"{page}\n\n{record['clocks']}" if record["clocks"] else page

    # --- Its end -----------------------------------------------------------------------------------

    def finish(self):
        """Writes its section, and its part of gpu.json."""
        call, seconds = self.call, int(self.call.programs.clock() - self.began)
        result = f"**{self.failed} failed**" if self.failed else "Done"
        if self.cut:
            result += f", {self.cut} without time"
        date, commit = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), call.commit()
        for figure in self.figures.values():
            figure["verdict"] = self.bars[figure["bar"]]["verdict"] if figure["bar"] else "measured"
        section = [f"`scripts/gpu_check.sh {self.name}`, {date}, commit {commit}. {result}, {seconds} s (about "
                   f"{self.about.seconds} were estimated).\n", *call.page.verdicts(self.bars.values()), "", *self.section]
        part = one_line({"name": self.name, "date": date, "commit": commit,
                         "result": f"{result.replace('*', '')}, {seconds} s", "machine": call.machine.told(),
                         "bars": list(self.bars.values()), "figures": list(self.figures.values()),
                         **({"samples": self.samples} if self.samples else {})})
        call.page.keep(self.name, "\n".join(section), part)
        print(f"{self.name}: {result}, {seconds} s")


def ran_out(status, seconds, limit):
    """Whether `timeout` ended a command. Status 137 before the limit is the kernel's kill for lack of memory."""
    return status == NO_TIME or (status == 137 and seconds >= limit)


def one_line(value):
    """`value` with texts of one line each."""
    if isinstance(value, dict):
        return {one_line(key): one_line(each) for key, each in value.items()}
    if isinstance(value, list):
        return [one_line(each) for each in value]
    if isinstance(value, str):
        return "".join(c if c.isprintable() else " " for c in value).strip()
    return value


def median(values):
    return statistics.median(values) if values else None
