#!/usr/bin/env python3
"""The figures of scripts/gpu_check.sh as data: gpu.json, which docs/gpu-check.md describes.

  figures.py check FILE
      checks that FILE is such a document; else prints an error, and the status is 2
  figures.py join FOLDER FILE NAME...
      writes FILE, the document of the named parts that are in FOLDER
  figures.py take FOLDER FILE NAME...
      writes into FOLDER the named parts that are in FILE
  figures.py part NAME DATE COMMIT RESULT MACHINE FOLDER FILE NAME...
      writes the part NAME into FOLDER from rows on standard input, then joins the parts; MACHINE is a
      file with the table of the machine. Rows have fields that end with a tab:
        bar     ID TEXT VERDICT FIGURE COMMAND      the last row with an ID counts
        figure  NAME SHAPE VALUE UNIT BAR           BAR is an ID, or empty
"""

import json
import os
import stat
import sys

FORMAT = "tessera gpu_check"
VERSION = 1
VERDICTS = ("met", "NOT met", "measured", "not measured", "refused")
MOST_BYTES = 16 * 2**20
MOST = 1e300  # larger numbers cannot be divided


class Wrong(Exception):
    """A document is unusable; says what is wrong, and where."""


# --- Reading ----------------------------------------------------------------------------------------


def contents(path):
    """The file's text. It must be a regular file: others may block or be endless."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise Wrong("it is not a file")
        if about.st_size > MOST_BYTES:
            raise Wrong(f"it has {about.st_size} bytes, and at most {MOST_BYTES} are read")
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise Wrong(error.strerror) from None
    except ValueError:  # a name with a null byte, or text that is not UTF-8
        raise Wrong("it is not text in UTF-8") from None


def no_number(text):
    raise Wrong(f"it is not JSON: {text} is no number")


def parsed(text):
    try:
        return json.loads(text, parse_constant=no_number)
    except json.JSONDecodeError as error:
        raise Wrong(f"it is not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except ValueError:
        raise Wrong("it is not JSON: a number has too many digits") from None
    except RecursionError:
        raise Wrong("scripts/gpu_check.sh did not write it: it is nested too deeply") from None


def member(value, key, kind, where):
    """value[key], which is of `kind`: "text", "number", "list" or "object"."""
    if not isinstance(value, dict):
        raise Wrong(f"{where or 'the document'} is no object")
    if key not in value:
        raise Wrong(f'{where or "the document"} has no "{key}"')
    found = value[key]
    right = {
        "text": isinstance(found, str) and found.isprintable(),
        "number": type(found) in (int, float) and abs(found) < MOST,
        "list": isinstance(found, list),
        "object": isinstance(found, dict),
    }[kind]
    if not right:
        need = {"text": "one line of text", "number": "a finite number", "list": "a list", "object": "an object"}[kind]
        raise Wrong(f"{where}{'.' if where else ''}{key} is not {need}")
    return found


def check_bars(part, where):
    """The ids of a part's bars."""
    ids = set()
    for i, bar in enumerate(member(part, "bars", "list", where)):
        here = f"{where}.bars[{i}]"
        for key in ("id", "bar", "verdict", "figure", "command"):
            member(bar, key, "text", here)
        if bar["verdict"] not in VERDICTS:
            raise Wrong(f"{here}.verdict is none of {', '.join(VERDICTS)}")
        if bar["id"] in ids:
            raise Wrong(f"{here}.id is there twice: {bar['id']}")
        ids.add(bar["id"])
    return ids


def check_figures(part, ids, where):
    seen = set()
    for i, figure in enumerate(member(part, "figures", "list", where)):
        here = f"{where}.figures[{i}]"
        for key in ("name", "shape", "unit", "verdict"):
            member(figure, key, "text", here)
        member(figure, "value", "number", here)
        if figure["verdict"] not in VERDICTS:
            raise Wrong(f"{here}.verdict is none of {', '.join(VERDICTS)}")
        if figure.get("bar") is not None and member(figure, "bar", "text", here) not in ids:
            raise Wrong(f"{here}.bar is none of the part's bars")
        if key_of(figure) in seen:
            raise Wrong(f"{here} is there twice: {figure['name']}, {figure['shape']}")
        seen.add(key_of(figure))


def key_of(figure):
    return figure["name"], figure["unit"], figure["shape"]


def check(document):
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Wrong(f'scripts/gpu_check.sh did not write it: it has no "format": "{FORMAT}"')
    if member(document, "version", "number", "") != VERSION:
        raise Wrong(f"it is of version {document['version']}, and this script reads version {VERSION}: "
                    "use the script of the commit that wrote it")
    names = set()
    for i, part in enumerate(member(document, "parts", "list", "")):
        where = f"parts[{i}]"
        for key in ("name", "date", "commit", "result"):
            member(part, key, "text", where)
        for key in member(part, "machine", "object", where):
            if not key.isprintable():
                raise Wrong(f"{where}.machine has a name that is not one line of text")
            member(part["machine"], key, "text", f"{where}.machine")
        check_figures(part, check_bars(part, where), where)
        if part["name"] in names:
            raise Wrong(f"{where}.name is there twice: {part['name']}")
        names.add(part["name"])


def read(path):
    """The checked document in `path`; raises Wrong if it is unusable."""
    document = parsed(contents(path))
    check(document)
    return document


# --- Writing ----------------------------------------------------------------------------------------


def printable(text):
    return "".join(c if c.isprintable() else " " for c in text).strip()


def machine_of(table):
    """The rows of a Markdown table with two columns."""
    rows = {}
    for line in table.splitlines():
        cells = line.strip().removeprefix("| ").removesuffix(" |").split(" | ", 1)
        if len(cells) == 2 and cells[0] not in ("", "commit"):
            rows[printable(cells[0])] = printable(cells[1].strip("*"))
    return rows


def number(text):
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def part_of(rows, about):
    """Builds a part of the document from the lines of rows."""
    bars, figures = {}, {}
    for line in rows:
        kind, *fields = map(printable, line.rstrip("\n").removesuffix("\t").split("\t"))
        if kind == "bar":
            bars[fields[0]] = dict(zip(("id", "bar", "verdict", "figure", "command"), fields))
        else:
            name, shape, value, unit, bar = fields
            figure = {"name": name, "shape": shape, "value": number(value), "unit": unit, "bar": bar or None}
            figures[key_of(figure)] = figure
    for figure in figures.values():
        figure["verdict"] = bars[figure["bar"]]["verdict"] if figure["bar"] else "measured"
    return {**about, "bars": list(bars.values()), "figures": list(figures.values())}


def document_of(parts):
    return {"format": FORMAT, "version": VERSION, "parts": parts}


def text_of(value, level=0):
    """`value` as JSON, one line per bar or figure."""
    inner = value.values() if isinstance(value, dict) else value
    if not any(isinstance(each, (dict, list)) for each in inner):
        return json.dumps(value, ensure_ascii=False)
    indent = "\n" + " " * (level + 1)
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {text_of(each, level + 1)}" if isinstance(each, (dict, list))
                 else f"{json.dumps(key)}: {json.dumps(each, ensure_ascii=False)}" for key, each in value.items()]
        return f"{{{indent}{f',{indent}'.join(lines)}\n{' ' * level}}}"
    return f"[{indent}{f',{indent}'.join(text_of(each, level + 1) for each in value)}\n{' ' * level}]"


def write(path, value):
    """Writes the whole file or nothing."""
    with open(f"{path}.partial", "w", encoding="utf-8") as file:
        file.write(f"{text_of(value)}\n")
    os.replace(f"{path}.partial", path)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_part(name, date, commit, result, machine, folder):
    with open(machine, encoding="utf-8", errors="replace") as file:
        about = {"name": name, "date": date, "commit": commit, "result": result, "machine": machine_of(file.read())}
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    part = part_of(sys.stdin, about)
    check(document_of([part]))
    write(os.path.join(folder, f"{name}.json"), part)


def join(folder, file, *names):
    parts = [os.path.join(folder, f"{name}.json") for name in names]
    write(file, document_of([load(part) for part in parts if os.path.exists(part)]))


def take(folder, file, *names):
    for part in read(file)["parts"]:
        if part["name"] in names:
            write(os.path.join(folder, f"{part['name']}.json"), part)


def main():
    command, *rest = sys.argv[1:]
    if command == "check":
        read(*rest)
    elif command == "join":
        join(*rest)
    elif command == "take":
        take(*rest)
    elif command == "part":
        write_part(*rest[:6])
        join(*rest[5:])


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        print(f"error: {sys.argv[2]}: {wrong}", file=sys.stderr)
        sys.exit(2)
