"""How long a page and its lines may be."""

LINES = 150
COLUMNS = 130

# Pages that may be longer and wider, each with its reason.
LONGER = {
    "docs/support.md": "`tessera doctor --support` prints it, and a test compares them",
}
RECORDS = ("CHANGELOG.md", "docs/decisions/")  # of the past: as long as they are


def findings(root, pages):
    for name in sorted(pages):
        if name.startswith(RECORDS):
            continue
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        if len(lines) > LINES and name not in LONGER:
            yield f"{name}: {len(lines)} lines; split it at {LINES}, or name it in docs/site/page_rules.py"
        if name in LONGER and len(lines) <= LINES:
            yield f"{name}: not longer than {LINES} lines any more; take it out of docs/site/page_rules.py"
        code = False
        for number, line in enumerate(lines, start=1):
            if line.startswith("```"):
                code = not code
            # A row of a table cannot be broken, nor a line that a program prints.
            if len(line) > COLUMNS and name not in LONGER and not line.startswith("|") and not code:
                yield f"{name}:{number}: {len(line)} columns of {COLUMNS}"
    for name in LONGER:
        if name not in pages:
            yield f"docs/site/page_rules.py: there is no page {name}"
