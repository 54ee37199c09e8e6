#!/usr/bin/env python3
"""Lays out the pages of the site, builds it with Sphinx, and checks it (scripts/site.sh).

  build.py FOLDER [--check] [--external]

FOLDER/source holds the pages as Sphinx reads them, FOLDER/html the site; what else is there is removed, so
that FOLDER is to be new, empty or of an earlier build. The pages of docs/ keep their
names; README.md, CONTRIBUTING.md and CHANGELOG.md stand beside them. docs/index.md is the first page,
and each of its headings with the links below it is a part of the side bar. A link to a file of the
repository that is no page leads to a page that shows it; one to a header or a layer's folder leads to
the API reference.
"""

import argparse
import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "scripts")]
sys.dont_write_bytecode = True

import api  # noqa: E402
import page_rules  # noqa: E402
import repository  # noqa: E402

LINK = re.compile(r"(\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".h": "c", ".c": "c", ".cu": "cpp", ".py": "python", ".sh": "bash",
             ".json": "json", ".cmake": "cmake", ".txt": "text", ".md": "markdown", ".js": "javascript"}


def outside_code(text):
    """Yields (piece, whether it is code), line by line within fences, in the order of the text."""
    fence = None
    for line in text.splitlines(keepends=True):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and fence is None:
            fence = mark.group(1)
            yield line, True
        elif mark and mark.group(1).startswith(fence):
            fence = None
            yield line, True
        else:
            yield line, fence is not None


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.source = folder / "source"
        self.html = folder / "html"
        self.files = repository.files()
        self.folders = {str(parent) for name in self.files for parent in Path(name).parents} - {"."}
        self.findings = []
        self.external = {}  # address -> the first page that has it
        self.listed = set()  # what docs/index.md lists
        self.shown = set()  # files and folders that get pages which show them
        self.pages = {name: self.page_name(name) for name in self.files if self.is_page(name)}

    @staticmethod
    def is_page(name):
        if name.startswith("docs/"):
            return name.endswith(".md") and not name.startswith("docs/site/")
        return name in ("README.md", "README.ko.md", "CONTRIBUTING.md", "CHANGELOG.md")

    def page_name(self, name):
        if self.is_page(name):
            return name.removeprefix("docs/") if name.startswith("docs/") else name.lower()
        return f"files/{name.removesuffix('.md')}.md"

    # ------------------------------------------------------------------------------ pages

    def target(self, page, link):
        """What `link` of the file `page` is on the site, as a path from its root, and its anchor."""
        path, _, anchor = link.partition("#")
        path = urllib.parse.unquote(path)
        if not path:
            return self.page_name(page), anchor
        name = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if name in self.pages:
            return self.pages[name], anchor
        if name.startswith("docs/images/") and name in self.files:
            return name.removeprefix("docs/"), ""
        layer = re.fullmatch(r"include/tessera(?:/(\w+))?", name)
        if layer and name in self.folders:
            return (f"api/{layer.group(1)}.md" if layer.group(1) else "api/index.md"), anchor
        if name.startswith("include/") and name in self.files and not name.endswith("dlpack.h"):
            header = name.removeprefix("include/")
            return f"api/{api.layer_of(header)}.md", api.anchor(header)
        if name in self.files or name in self.folders:
            self.shown.add(name)
            return self.page_name(name), anchor
        return None, ""

    def rewritten(self, page, text):
        staged = os.path.dirname(self.page_name(page))

        def change(match):
            link = match.group(2)
            if re.match(r"[a-z]+:", link):
                self.external.setdefault(link, page)
                return match.group(0)
            name, anchor = self.target(page, link)
            if name is None:
                line = text[:text.find(link)].count("\n") + 1
                self.findings.append(f"{page}:{line}: dead link {link}")
                return match.group(0)
            path = os.path.relpath(name, staged or ".")
            return f"{match.group(1)}{path}{'#' if anchor else ''}{anchor}{match.group(3)}"

        def define(match):
            return match.group(1) + change(re.match(LINK, f"[]({match.group(2)})"))[3:-1]

        def prose_of(lines):
            return re.sub(r"(?m)^(\[[^\]]+\]: )(\S+)$", define, LINK.sub(change, "".join(lines)))

        # Links may be broken over lines, but not into code.
        pieces, prose = [], []
        for piece, is_code in outside_code(text):
            if is_code:
                pieces.append(prose_of(prose))
                pieces.append(piece)
                prose = []
            else:
                prose.append(piece)
        return "".join(pieces) + prose_of(prose)

    def write(self, name, text):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads again what has changed: leave the others as they are.
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        self.written.add(path)

    def parts(self, text):
        """Puts the tables of contents of docs/index.md behind its headings: its lists of links."""
        out = []
        for section in re.split(r"(?m)^(?=## )", text):
            heading = re.match(r"## (.+)\n", section)
            out.append(section)
            if not heading:
                continue
            entries = []
            for match in re.finditer(r"(?m)^\| *\[([^\]]+)\]\(([^)#\s]+)\)|^- \[([^\]]+)\]\(([^)#\s]+)\)", section):
                title, link = match.group(1) or match.group(3), match.group(2) or match.group(4)
                name, _ = self.target("docs/index.md", link)
                if name:
                    self.listed.add(name)
                    entries.append(f"{title} <{name}>")
            if entries:
                out.append("\n".join(["", "```{toctree}", ":hidden:", f":caption: {heading.group(1)}", "",
                                      *entries, "```", ""]))
        return "".join(out)

    def listing(self, name):
        """The page of a folder: the pages in it, and the names of its other files."""
        inside = sorted({f"{name}/{Path(file).relative_to(name).parts[0]}" for file in self.files
                         if file.startswith(name + "/")})
        out = [f"# {name.removeprefix('docs/').capitalize() if name.startswith('docs/') else name}", ""]
        out += [f"- `{os.path.basename(entry)}`" for entry in inside if entry not in self.pages]
        pages = [f"/{self.pages[entry]}" for entry in inside if entry in self.pages]
        if pages:
            out += ["", "```{toctree}", ":maxdepth: 1", "", *pages, "```"]
        orphan = [] if self.page_name(name) in self.listed else ["---", "orphan: true", "---", ""]
        return "\n".join([*orphan, *out, ""])

    def shown_file(self, name):
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        if name.endswith(".md"):
            return "---\norphan: true\n---\n\n" + self.rewritten(name, text)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
        return "\n".join(["---", "orphan: true", "nosearch: true", "---", "", f"# {name}", "",
                          f"{fence}{LANGUAGES.get(Path(name).suffix, 'text')}", text.rstrip("\n"), fence, ""])

    def lay_out(self, xml):
        self.written = set()
        for name, page in self.pages.items():
            text = (ROOT / name).read_text(encoding="utf-8")
            if name == "docs/index.md":
                text = self.parts(text)
            self.write(page, self.rewritten(name, text))
        reference = api.Reference(xml, ROOT / "include")
        self.undocumented += reference.silent_values()
        layers = []
        for layer, text in reference.pages():
            layers.append(layer)
            self.write(f"api/{layer}.md", text)
        self.write("api/index.md", "\n".join(
            ["# API reference", "", "The public headers, layer by layer. `#include <tessera/tessera.hpp>` brings all of",
             "C++ but the layers kernels and torch.", "", "| layer | holds |", "|---|---|",
             *(f"| [{layer}]({layer}.md) | {api.LAYERS[layer]} |" for layer in layers), "",
             "```{toctree}", ":hidden:", "", *layers, "```", ""]))
        done = set()
        while self.shown - done:  # what is shown may have links too
            for name in sorted(self.shown - done):
                self.write(self.page_name(name), self.listing(name) if name in self.folders else self.shown_file(name))
                done.add(name)
        for name in self.files:
            if name.startswith("docs/images/"):
                target = self.source / name.removeprefix("docs/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
                self.written.add(target)
        for path in sorted(self.source.rglob("*"), reverse=True):
            if path.is_file() and path not in self.written:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    # ------------------------------------------------------------------------------ tools

    def doxygen(self):
        out = self.folder / "doxygen"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        done = subprocess.run(["doxygen", "docs/site/Doxyfile"], cwd=ROOT, text=True, capture_output=True,
                              env={**os.environ, "TESSERA_DOXYGEN_OUT": str(out)}, check=False)
        self.undocumented = [line for line in done.stderr.splitlines() if line.strip()]
        if done.returncode != 0:
            sys.exit(f"doxygen fails:\n{done.stderr}")
        return out / "xml"

    def sphinx(self, anew):
        """Runs Sphinx; anew, it warns of pages that have not changed too."""
        # This Python's own: another one first in PATH may lack the theme.
        sphinx = [sys.executable, "-m", "sphinx"] if importlib.util.find_spec("sphinx") else ["sphinx-build"]
        done = subprocess.run([*sphinx, "-q", "-W", "--keep-going", "-b", "html", *(["-E"] if anew else []),
                               "-c", "docs/site", "-d", str(self.folder / "doctrees"),
                               str(self.source), str(self.html)],
                              cwd=ROOT, text=True, capture_output=True, check=False)
        for line in done.stderr.splitlines():
            if line.strip() and "finished with problems" not in line:
                self.findings.append(line.replace(f"{self.source}/", ""))
        if done.returncode != 0 and not (self.html / "_static/styles/furo.css").is_file():
            sys.exit(f"Sphinx fails with status {done.returncode}:\n{done.stderr}")

    def mend_theme(self):
        """Debian's furo asks for a style sheet by the path of a web server, and imports its script as a
        module, which no browser does from a file."""
        static = self.html / "_static"
        # Sphinx copies it only where a page has changed too.
        shutil.copy2(ROOT / "docs/site/static/style.css", static)
        sheet = static / "styles/furo.css"
        text = sheet.read_text(encoding="utf-8")
        wanted = re.search(r"@import url\((/javascript/[^)]+)\);", text)
        if wanted:
            shutil.copy2(f"/usr/share{wanted.group(1)}", static / "styles/normalize.css")
            sheet.write_text(text.replace(wanted.group(0), "@import url(normalize.css);"), encoding="utf-8")
        script = static / "scripts/furo.js"
        text = script.read_text(encoding="utf-8")
        wanted = re.match(r'import Gumshoe from "./(gumshoe[\w.-]*)";\n', text)
        if wanted:
            inner = (script.parent / wanted.group(1)).read_text(encoding="utf-8")
            script.write_text(inner + ";\n" + text[wanted.end():], encoding="utf-8")

    # ------------------------------------------------------------------------------ checks

    def check_links(self):
        """Every link and image of the site leads to a file of it, and to an anchor there."""
        ids, links = {}, {}
        for path in sorted(self.html.rglob("*.html")):
            text = path.read_text(encoding="utf-8")
            name = str(path.relative_to(self.html))
            ids[name] = set(re.findall(r'\bid="([^"]+)"', text))
            links[name] = set(re.findall(r'<(?:a|link|img|script|iframe)\b[^>]*?\b(?:href|src)="([^"]*)"', text))
            for address in re.findall(r'<(?:link|img|script|iframe)\b[^>]*?\b(?:href|src)="((?:https?:)?//[^"]*)"', text):
                self.findings.append(f"{name}: loads {address}, and the site is read without a network")
        dead = set()
        for name, targets in links.items():
            for link in targets:
                link = html.unescape(link)
                if re.match(r"[a-z]+:|//", link):
                    continue
                path, _, anchor = link.partition("#")
                path = urllib.parse.unquote(path.partition("?")[0])
                target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
                if not (self.html / target).is_file():
                    dead.add(f"{name}: dead link {link}")
                elif anchor and target in ids and urllib.parse.unquote(anchor) not in ids[target]:
                    dead.add(f"{name}: no anchor #{anchor} in {target}")
        self.findings += sorted(dead)
        for path in sorted(self.html.rglob("*.css")):
            for address in re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", path.read_text(encoding="utf-8")):
                self.findings.append(f"{path.relative_to(self.html)}: loads {address}")

    def check_external(self, fetch):
        print(f"{len(self.external)} links leave the site"
              + ("" if fetch else "; --external fetches them"))
        for address, page in sorted(self.external.items()):
            if not fetch:
                continue
            try:
                request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0"})
                urllib.request.urlopen(request, timeout=20).close()
            except (OSError, ValueError) as error:
                self.findings.append(f"{page}: {address}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--external", action="store_true")
    given = parser.parse_args()
    site = Site(given.folder.resolve())
    repository.claim(site.folder, "site", ROOT)
    site.source.mkdir(exist_ok=True)
    site.lay_out(site.doxygen())
    site.sphinx(anew=given.check)
    site.mend_theme()
    site.check_links()
    if given.check:
        site.findings += [f"include/{line}" for line in site.undocumented]
        site.findings += page_rules.findings(ROOT, site.pages)
        words = subprocess.run([sys.executable, "scripts/plain_words.py", *sorted(site.pages)], cwd=ROOT,
                               text=True, capture_output=True, check=False)
        site.findings += words.stdout.splitlines()
        site.check_external(given.external)
    for finding in site.findings:
        print(finding)
    print(f"{len(site.pages)} pages: {site.html}/index.html, {len(site.findings)} findings")
    return 1 if site.findings else 0


if __name__ == "__main__":
    sys.exit(main())
