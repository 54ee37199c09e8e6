"""gpu.json, which docs/gpu-check.md describes: reading, checking and writing."""

import json
import os
import stat

FORMAT = "tessera gpu_check"
VERSION = 1
VERDICTS = ("met", "NOT met", "measured", "not measured", "refused")
MOST_BYTES = 16 * 2**20
MOST = 1e300  # larger numbers cannot be divided

# What a value must be: the members of an object, the elements of a list, or a test and what is said otherwise.
TEXT = (lambda value: isinstance(value, str) and value.isprintable(), "is not one line of text")
NUMBER = (lambda value: type(value) in (int, float) and abs(value) < MOST, "is not a finite number")
VERDICT = (lambda value: value in VERDICTS, f"is none of {', '.join(VERDICTS)}")
BAR = {"id": TEXT, "bar": TEXT, "verdict": VERDICT, "figure": TEXT, "command": TEXT}
FIGURE = {"name": TEXT, "shape": TEXT, "value": NUMBER, "unit": TEXT, "verdict": VERDICT}
PART = {"name": TEXT, "date": TEXT, "commit": TEXT, "result": TEXT, "machine": {}, "bars": [BAR], "figures": [FIGURE]}
DOCUMENT = {"version": NUMBER, "parts": [PART]}


class Wrong(Exception):
    """A document is unusable; says what is wrong, and where."""


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


def check_value(value, need, where=""):
    """Raises Wrong unless `value` is what `need` says."""
    if isinstance(need, dict):
        if not isinstance(value, dict):
            raise Wrong(f"{where} is not an object")
        for key, of in need.items():
            if key not in value:
                raise Wrong(f'{where or "the document"} has no "{key}"')
            check_value(value[key], of, f"{where}.{key}" if where else key)
    elif isinstance(need, list):
        if not isinstance(value, list):
            raise Wrong(f"{where} is not a list")
        for i, one in enumerate(value):
            check_value(one, need[0], f"{where}[{i}]")
    elif not need[0](value):
        raise Wrong(f"{where} {need[1]}")


def check_once(values, where, what=""):
    seen = set()
    for i, value in enumerate(values):
        if value in seen:
            raise Wrong(f"{where}[{i}]{what} is there twice: {', '.join(value)}")
        seen.add(value)


def check_part(part, where):
    for key, value in part["machine"].items():
        if not key.isprintable():
            raise Wrong(f"{where}.machine has a name that is not one line of text")
        check_value(value, TEXT, f"{where}.machine.{key}")
    ids = [(bar["id"],) for bar in part["bars"]]
    check_once(ids, f"{where}.bars", ".id")
    for i, figure in enumerate(part["figures"]):
        bar = figure.get("bar")
        if bar is not None:
            check_value(bar, TEXT, f"{where}.figures[{i}].bar")
            if (bar,) not in ids:
                raise Wrong(f"{where}.figures[{i}].bar is none of the part's bars")
    check_once([key_of(figure) for figure in part["figures"]], f"{where}.figures")


def key_of(figure):
    return figure["name"], figure["shape"], figure["unit"]


def check(document):
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Wrong(f'scripts/gpu_check.sh did not write it: it has no "format": "{FORMAT}"')
    check_value(document, {"version": NUMBER})
    if document["version"] != VERSION:
        raise Wrong(f"it is of version {document['version']}, and this script reads version {VERSION}: "
                    "use the script of the commit that wrote it")
    check_value(document, DOCUMENT)
    for i, part in enumerate(document["parts"]):
        check_part(part, f"parts[{i}]")
    check_once([(part["name"],) for part in document["parts"]], "parts", ".name")


def read(path):
    """The checked document in `path`; raises Wrong if it is unusable."""
    document = parsed(contents(path))
    check(document)
    return document


def of_parts(parts):
    return {"format": FORMAT, "version": VERSION, "parts": parts}


def text_of(value, level=0):
    """`value` as JSON, with one line for each bar, figure and sample."""
    if level > 3 or not isinstance(value, (dict, list)) or (level == 3 and isinstance(value, dict)):
        return json.dumps(value, ensure_ascii=False)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = ([f"{json.dumps(key)}: {text_of(each, level + 1)}" for key, each in value.items()]
             if isinstance(value, dict) else [text_of(each, level + 1) for each in value])
    indent = "\n" + " " * level
    return opening + ",".join(f"{indent} {line}" for line in lines) + (indent if lines else "") + closing


def write(path, document):
    """Writes the whole file or nothing."""
    with open(f"{path}.partial", "w", encoding="utf-8") as file:
        file.write(f"{text_of(document)}\n")
    os.replace(f"{path}.partial", path)
