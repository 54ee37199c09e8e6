"""Writes the pages of the API reference, one for each layer, from Doxygen's XML.

Doxygen says which symbols there are, their types and what they refer to. A symbol's text is the
comment above it in the header, laid out as there.
"""

import html
import re
import xml.etree.ElementTree as ElementTree

# What the layers are for, in the order of the index. A header that no folder holds is a page too.
LAYERS = {
    "engine": "the sharded model, its options, scopes and steps",
    "world": "ranks, meshes, and how a job is launched or simulated",
    "optim": "optimizers and learning rates",
    "nn": "a GPT, its layers, and layers split by tensor",
    "pipeline": "schedules and the pipeline that runs them",
    "checkpoint": "saving and loading training state and weights",
    "data": "tokens, samples and loaders",
    "profile": "plans, ledgers, reports and traces",
    "kernels": "the operations that layers are made of",
    "comm": "communicators and collectives",
    "device": "devices, streams and events",
    "memory": "buffers, categories and the memory tracker",
    "shard": "how parameters are laid out over ranks",
    "trace": "recorded work of a step",
    "base": "errors, types of data, views and numbers",
    "torch": "the adapter of libtorch modules",
    "c": "the interface for C",
}
MEMBERS = {"public-type", "public-attrib", "public-static-attrib", "public-func", "public-static-func",
           "protected-func"}
LABEL = re.compile(r"^([A-Z][a-z]+:|How it works:|Random numbers:)(?=\s)")
LONGEST = 84  # characters of a signature on one line


def layer_of(header):
    """The layer of a header that is named as programs include it."""
    parts = header.split("/")
    if len(parts) > 2:
        return parts[1]
    return {"c.h": "c", "torch.hpp": "torch"}.get(parts[1], "base")


def anchor(header):
    """The anchor of a header's heading on the page of its layer."""
    return re.sub(r"[^\w-]", "", header.rsplit("/", 1)[-1])


def text_of(element):
    return "".join(element.itertext()) if element is not None else ""


class Reference:
    def __init__(self, xml, headers):
        self.headers = headers  # the folder that holds tessera/
        self.places = {}  # Doxygen's id of a symbol -> page#anchor
        self.types = {}  # a type's name without namespaces -> its id, where only one has it
        self.lines = {}
        self.compounds = {}
        for path in sorted(xml.glob("*.xml")):
            if path.name not in ("index.xml", "Doxyfile.xml"):
                for compound in ElementTree.parse(path).getroot().iter("compounddef"):
                    self.compounds[compound.get("id")] = compound
        self.collect()

    def collect(self):
        """Sorts symbols by the header that declares them."""
        self.by_header = {}
        shared = set()
        for compound in self.compounds.values():
            kind = compound.get("kind")
            if kind in ("struct", "class", "union", "concept"):
                name = compound.findtext("compoundname")
                header, line = self.location(compound)
                if not header or compound.get("prot", "public") != "public":
                    continue
                self.add(header, line, compound)
                short = name.split("::")[-1]
                shared |= {short} & self.types.keys()
                self.types[short] = compound.get("id")
                for member in compound.iter("memberdef"):
                    self.place(member, header)
            elif kind in ("file", "namespace"):
                for member in compound.iter("memberdef"):
                    header, line = self.location(member)
                    if not header or member.get("static") == "yes":
                        continue
                    self.add(header, line, member)
                    if member.get("kind") in ("enum", "typedef"):
                        short = member.findtext("name")
                        if short:
                            self.types[short] = member.get("id")
        for short in shared:
            del self.types[short]

    def location(self, element):
        location = element.find("location")
        name = location.get("file") if location is not None else None
        if not name or not (self.headers / name).is_file():
            return None, 0
        return name, int(location.get("line"))

    def add(self, header, line, element):
        listed = self.by_header.setdefault(header, {})
        listed.setdefault(element.get("id"), (line, element))
        self.place(element, header)

    def place(self, element, header):
        self.places[element.get("id")] = f"{layer_of(header)}.html#{element.get('id')}"
        for value in element.iter("enumvalue"):
            self.places[value.get("id")] = f"{layer_of(header)}.html#{element.get('id')}"

    def silent_values(self):
        """Enumerators without a comment, of which Doxygen does not warn."""
        for compound in self.compounds.values():
            for member in compound.iter("memberdef"):
                header, line = self.location(member)
                for value in member.findall("enumvalue") if header and member.get("prot") != "private" else []:
                    if not any(text_of(value.find(kind)).strip() for kind in ("briefdescription", "detaileddescription")):
                        yield f"{header}:{line}: {member.findtext('name')}::{value.findtext('name')} has no comment"

    # ------------------------------------------------------------------------- comments

    def source(self, header):
        if header not in self.lines:
            self.lines[header] = (self.headers / header).read_text(encoding="utf-8").splitlines()
        return self.lines[header]

    def comment(self, element):
        """The lines of the comment on a symbol; Doxygen's words if there is none in the header."""
        header, number = self.location(element)
        lines = self.source(header) if header else []
        at = number - 1
        if 0 <= at < len(lines):
            if behind := re.search(r"(?:///<|/\*\*?<?)\s*(.*?)\s*(?:\*/)?$", lines[at]):
                found = [behind.group(1)]
                while at + 1 < len(lines) and (more := re.match(r"\s*///<\s?(.*)$", lines[at + 1])):
                    found.append(more.group(1))
                    at += 1
                return found
            at -= 1
            while at >= 0 and re.match(r"\s*(template\b|requires\b|\[\[|inline\b|extern\b)", lines[at]):
                at -= 1
            found = []
            if at >= 0 and lines[at].rstrip().endswith("*/"):
                while at >= 0:
                    found.append(re.sub(r"^\s*(/\*\*?|\*/|\* ?)?|\s*\*/\s*$", "", lines[at]))
                    if "/*" in lines[at]:
                        break
                    at -= 1
            while at >= 0 and (match := re.match(r"\s*///(?!<) ?(.*)$", lines[at])):
                found.append(match.group(1))
                at -= 1
            if any(line.strip() for line in found):
                return found[::-1]
        words = [text_of(element.find(kind)).strip() for kind in ("briefdescription", "detaileddescription")]
        return [word for word in words if word]

    def link(self, name, own=None):
        """HTML of a word: a link if it is the name of a type other than `own`."""
        target = self.types.get(name)
        if not target or target == own or target not in self.places:
            return name
        return f'<a href="{self.places[target]}">{name}</a>'

    def linked(self, text, own):
        """HTML of a line of a comment: `code`, *emphasis*, and links to the types it names."""
        text = html.escape(text, quote=False)

        text = re.sub(r"\b[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*\b|\btessera_\w+\b",
                      lambda match: self.link(match.group(0), own), text)
        text = LABEL.sub(r"<strong>\1</strong>", text)
        # Emphasis is of words, and not between asterisks of code, patterns or products.
        return "".join(f"<code>{piece[1:-1]}</code>" if piece.startswith("`") else
                       re.sub(r"(?<![^\s(])\*([A-Za-z<][^*]*)\*(?=[\s.,;:)]|$)", r"<em>\1</em>", piece)
                       for piece in re.split(r"(`[^`]+`)", text))

    def about(self, header):
        """HTML of the comment that a header begins with."""
        found = []
        for line in self.source(header):
            if not re.match(r"\s*(/?\*|//)", line):
                break
            found.append(re.sub(r"^\s*(/\*\*?|\*/|\* ?|///? ?)", "", line))
        return self.prose_of(found, None)

    def prose(self, element):
        return self.prose_of(self.comment(element), element.get("id"))

    def prose_of(self, comment, own):
        """HTML of a comment: paragraphs, labels such as `Errors:`, and what is set apart."""
        out, paragraph, apart = [], [], []

        def flush():
            if paragraph:
                out.append("<p>" + "\n".join(self.linked(line, own) for line in paragraph) + "</p>")
                paragraph.clear()
            if apart:
                indent = min(len(line) - len(line.lstrip()) for line in apart)
                out.append("<pre>" + html.escape("\n".join(line[indent:] for line in apart)) + "</pre>")
                apart.clear()

        labelled = False
        for line in comment:
            if not line.strip():
                flush()
                labelled = False
            elif LABEL.match(line):
                flush()
                paragraph.append(line)
                labelled = True
            elif re.match(r" {2,}\S", line) and not labelled:
                if paragraph:
                    flush()
                apart.append(line)
            else:
                if apart:
                    flush()
                paragraph.append(line.strip())
        flush()
        # A blank line would end the block in the page's Markdown.
        return re.sub(r"\n(?=\s*\n)", "\n&#8203;", "\n".join(out))

    # ----------------------------------------------------------------------- signatures

    def code(self, element):
        """HTML of a type or an expression, with links to what it names."""
        if element is None:
            return ""
        def plain(text):
            # Doxygen does not link the types of C.
            return re.sub(r"\btessera_\w+\b", lambda m: self.link(m.group(0)), html.escape(text or ""))

        parts = [plain(element.text)]
        for child in element:
            inner = html.escape(text_of(child))
            target = self.places.get(child.get("refid", ""))
            parts.append(f'<a href="{target}">{inner}</a>' if target else inner)
            parts.append(plain(child.tail))
        return re.sub(r"&lt; | &gt;", lambda m: m.group(0).strip(), "".join(parts)).strip()

    def template(self, element):
        parameters = element.find("templateparamlist")
        if parameters is None:
            return ""
        shown = []
        for parameter in parameters.findall("param"):
            name = parameter.findtext("declname") or ""
            default = self.code(parameter.find("defval"))
            shown.append(" ".join(filter(None, [self.code(parameter.find("type")), name]))
                         + (f" = {default}" if default else ""))
        return f"template &lt;{', '.join(shown)}&gt;\n"

    def parameters(self, member):
        shown = []
        for parameter in member.findall("param"):
            kind = self.code(parameter.find("type"))
            name = parameter.findtext("declname") or parameter.findtext("defname") or ""
            array = parameter.findtext("array") or ""
            default = self.code(parameter.find("defval"))
            if ")(" in array or kind.endswith("(*"):  # a pointer to a function
                shown.append(f"{kind}{name}{html.escape(array)}")
                continue
            gap = "" if kind.endswith(("&amp;", "*")) or not name else " "
            kind = re.sub(r" (&amp;|\*)+$", lambda m: m.group(0).strip(), kind)
            gap = " " if name and kind else gap
            shown.append(f"{kind}{gap}{name}{html.escape(array)}" + (f" = {default}" if default else ""))
        return shown

    @staticmethod
    def name(member):
        """HTML of a symbol's name; empty where it has none, as the enums of the C header."""
        name = member.findtext("name") or ""
        return "" if name.startswith("@") else html.escape(name)

    def signature(self, member):
        kind = member.get("kind")
        name = self.name(member)
        if kind == "enum":
            strong = "class " if member.get("strong") == "yes" else ""
            base = self.code(member.find("type"))
            return f"enum {strong}<b>{name}</b>" + (f" : {base}" if base else "")
        if kind == "define":
            names = [parameter.findtext("defname") or "" for parameter in member.findall("param")]
            return f"#define <b>{name}</b>" + (f"({', '.join(names)})" if names else "")
        type_ = self.code(member.find("type"))
        type_ = re.sub(r" (&amp;|\*)+$", lambda m: m.group(0).strip(), type_)
        arguments = member.findtext("argsstring") or ""
        if kind == "typedef":
            if (member.findtext("definition") or "").startswith("using"):
                return f"{self.template(member)}using <b>{name}</b> = {type_}"
            return f"typedef {type_} <b>{name}</b>{html.escape(arguments)}"
        words = ["static"] if member.get("static") == "yes" else []
        if member.get("virt") in ("virtual", "pure-virtual"):
            words.append("virtual")
        if member.get("explicit") == "yes":
            words.append("explicit")
        if type_:
            words.append(type_)
        head = " ".join(words) + (" " if words else "") + f"<b>{name}</b>"
        if kind == "variable":
            start = self.code(member.find("initializer"))
            return head + html.escape(arguments) + (f" {start}" if start and len(start) < 200 else "")
        shown = self.parameters(member)
        tail = html.escape(arguments[arguments.rfind(")") + 1:]) if ")" in arguments else ""
        tail = re.sub(r"\s*=\s*(0|default|delete)", r" = \1", tail)
        plain = re.sub(r"<[^>]*>", "", f"{head}({', '.join(shown)}){tail}")
        if len(html.unescape(plain)) > LONGEST and shown:
            return self.template(member) + f"{head}(\n    " + ",\n    ".join(shown) + f"){tail}"
        return self.template(member) + f"{head}({', '.join(shown)}){tail}"

    # ---------------------------------------------------------------------------- pages

    def shown(self, member, level="api-member"):
        out = [f'<div class="{level}" id="{member.get("id")}">',
               f'<pre class="api-signature">{self.signature(member)}</pre>', self.prose(member)]
        values = member.findall("enumvalue")
        if values:
            out.append('<dl class="api-values">')
            for value in values:
                words = " ".join(text_of(value.find(kind)).strip()
                                 for kind in ("briefdescription", "detaileddescription")).strip()
                start = self.code(value.find("initializer"))
                out.append(f"<dt><code>{html.escape(value.findtext('name'))}{' ' + start if start else ''}"
                           f"</code></dt><dd>{self.linked(words, None)}</dd>")
            out.append("</dl>")
        out.append("</div>")
        return "\n".join(filter(None, out))

    def compound(self, compound):
        name = compound.findtext("compoundname")
        short = name.removeprefix("tessera::")
        kind = compound.get("kind")
        if kind == "concept":
            start = self.code(compound.find("initializer"))
            signature = start
        else:
            bases = ", ".join(self.code(base) if not base.get("refid") else
                              f'<a href="{self.places.get(base.get("refid"), "")}">'
                              f"{html.escape(text_of(base))}</a>"
                              for base in compound.findall("basecompoundref")
                              if base.get("prot", "public") == "public")
            signature = (f"{self.template(compound)}{kind} <b>{html.escape(short)}</b>"
                         + (f" : {bases}" if bases else ""))
        out = [f'<div class="api-type" id="{compound.get("id")}">',
               f'<pre class="api-signature">{signature}</pre>', self.prose(compound), "</div>"]
        members = [member for section in compound.findall("sectiondef") if section.get("kind") in MEMBERS
                   for member in section.findall("memberdef")]
        members.sort(key=lambda member: int(member.find("location").get("line")))
        return short, out + [self.shown(member) for member in members]

    def page(self, layer, headers):
        title = f"API: {layer}" if layer != "c" else "API: C"
        out = [f"# {title}", "", f"{LAYERS[layer][0].upper()}{LAYERS[layer][1:]}.", ""]
        for header in headers:
            out += [f"## {header.rsplit('/', 1)[-1]}", "", "```cpp",
                    f"#include <{header}>", "```", ""]
            if about := self.about(header):
                out += ["```{raw} html", about, "```", ""]
            functions = []

            def write_functions():
                if functions:
                    names = list(dict.fromkeys(filter(None, map(self.name, functions)))) or ["Constants"]
                    out.extend([f"### {', '.join(names)}", "", "```{raw} html",
                                *(self.shown(item) for item in functions), "```", ""])
                    functions.clear()

            for _, element in sorted(self.by_header[header].values(), key=lambda pair: pair[0]):
                if element.tag == "memberdef":
                    # Overloads share a heading, and so do a type of C and its constants.
                    name = self.name(element)
                    if functions and name and self.name(functions[-1]) != name:
                        write_functions()
                    functions.append(element)
                    continue
                write_functions()
                short, blocks = self.compound(element)
                out.extend([f"### {short}", "", "```{raw} html", *filter(None, blocks), "```", ""])
            write_functions()
        return "\n".join(out)

    def pages(self):
        """Yields (layer, text of its page)."""
        by_layer = {}
        for header in sorted(self.by_header):
            by_layer.setdefault(layer_of(header), []).append(header)
        unknown = by_layer.keys() - LAYERS.keys()
        if unknown:
            raise SystemExit(f"docs/site/api.py does not know the layers {sorted(unknown)}: add them to LAYERS")
        for layer in LAYERS:
            if layer in by_layer:
                yield layer, self.page(layer, by_layer[layer])
