#!/usr/bin/env python3
"""Counts the instructions of the loops of CUDA kernels, by pipe, from their machine code.

    scripts/kernel_loops.py [--kernels PATTERN] [--avoid PATTERN] [--shortest] [--path] FILE...

Prints a row for each loop that accesses memory, of the kernels of the given objects or modules whose
names match PATTERN, a regular expression. A row counts what a thread issues in one trip, along the way
through the loop that accesses most bytes of global memory; of several such ways along the longest, or
with --shortest the shortest. An inner loop counts in its own row only. The way leaves out

  - the slow paths of divisions and roots (calls) and the code of diverged warps,
  - 8- and 16-bit accesses to global memory, if the kernel has accesses of 16 bytes,
  - blocks with an instruction that --avoid matches: "BAR" leaves out sums over a block, "HADD2|F16"
    conversions from and to fp16.

--path lists the way's instructions. "bytes" are those of global memory. "bytes per clock" is the rate
at which the named pipe of a multiprocessor of compute capability 9.0 has no idle clock: an H100 at 3 TB/s
moves 13 bytes per clock and multiprocessor (132 of them, 1.755 GHz).

Needs cuobjdump and nvdisasm of the CUDA toolkit.
"""
import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter

# Lanes per clock and multiprocessor of compute capability 9.0, from the table "Throughput of Native
# Arithmetic Instructions" of the CUDA C++ Programming Guide; conversions from and to 64-bit types have
# the rate of special functions here. One warp instruction per clock for each of four schedulers.
LANES = {"issue": 128, "fp32": 128, "imad": 64, "int": 64, "xu": 16, "fp64": 64, "lsu": 32}

# The pipe of an opcode: the first pattern that its beginning matches. "imad" is a half of "fp32".
PIPES = {
    "fp64": r"D(ADD|MUL|FMA|SETP|MNMX)\b",
    "xu": r"(MUFU|I2F|F2I|F2F|I2I|FRND|POPC|FLO|BREV)\b",
    "lsu": r"(LD|LDG|LDS|LDL|ST|STG|STS|STL|LDGSTS|LDSM|STSM|SHFL|ATOMG?|ATOMS|RED)\b",
    "imad": r"IMAD\b",
    "fp32": r"(F(ADD|MUL|FMA)|H(ADD|MUL|FMA)2)\b",
    "other": r"(BRA|BRX|EXIT|BSSY|BSYNC|BREAK|BAR|WARPSYNC|RET|CALL|NOP|YIELD|LDGDEPBAR|DEPBAR|MEMBAR|LDC|CS2R|S2R|R2UR|U[A-Z])",
    "int": "",
}
GLOBAL = ("LDG", "STG", "LDGSTS")
JUMPS = ("BRA", "BRX", "EXIT", "RET", "CALL", "BSSY", "BSYNC", "BREAK", "WARPSYNC")
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*([^;]*);")


class Instruction:
    def __init__(self, match):
        self.address = int(match[1], 16)
        self.predicated = match[2] is not None
        self.opcode, self.operands = match[3], match[4].strip()
        self.base = self.opcode.split(".")[0]
        self.pipe = next(pipe for pipe, pattern in PIPES.items() if re.match(pattern, self.opcode))

    def target(self):
        """The address that it jumps to; None: none, or not a constant."""
        last = re.search(r"\b0x([0-9a-f]+)$", self.operands)
        return int(last[1], 16) if last and self.base in JUMPS and self.base != "CALL" else None

    def width(self):
        """Bytes of an access."""
        widths = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
        return next((widths[part] for part in self.opcode.split(".") if part in widths), 4)

    def global_bytes(self):
        return self.width() if self.base in GLOBAL else 0

    def __str__(self):
        return f"{self.address:05x} {'@ ' if self.predicated else '  '}{self.opcode} {self.operands}"


class Block:
    """A basic block."""

    def __init__(self, instructions):
        self.instructions = instructions
        self.next = []  # addresses of blocks

    def avoided(self, pattern, wide):
        return any(one.base == "CALL" or (wide and one.global_bytes() in (1, 2)) or pattern.search(str(one))
                   for one in self.instructions)


def functions(path):
    """Yields the name and the instructions of each function of an object or module."""
    text = subprocess.run(["cuobjdump", "--dump-sass", path], check=True, text=True, capture_output=True).stdout
    for part in text.split("Function : ")[1:]:
        mangled, body = part.split("\n", 1)
        name = subprocess.run(["c++filt", "-p", mangled], check=True, text=True, capture_output=True).stdout.strip()
        name = re.sub(r"\(anonymous namespace\)::|tessera::kernels::cuda::|tessera::", "", name).removeprefix("void ")
        yield name, [Instruction(match) for match in LINE.finditer(body)]


def blocks_of(body):
    """The basic blocks of a function by address, without edges to the code of diverged warps."""
    starts = {body[0].address}
    for one, following in zip(body, body[1:] + body[:1]):
        if one.base in JUMPS:
            starts |= {following.address} | ({one.target()} - {None})
    blocks = {}
    for one in body:
        if one.address in starts:
            block = blocks[one.address] = Block([])
        block.instructions.append(one)
    joins = {}  # where threads go on behind a barrier register
    for one in body:
        if one.base == "BSSY":
            joins.setdefault(one.operands.split(",")[0], set()).add(one.target())
    order = sorted(blocks)
    for start, after in zip(order, order[1:] + [None]):
        blocks[start].next = [to for to in successors(blocks[start].instructions[-1], after, joins) if to in blocks]
    return blocks


def successors(last, after, joins):
    conditional = last.predicated or "," in last.operands
    if last.base == "BRA" and ".DIV" not in last.opcode:
        return [last.target(), after] if conditional else [last.target()]
    if last.base in ("EXIT", "RET", "BRX") and not last.predicated:
        return []
    if last.base == "BSYNC" and after not in joins.get(last.operands, ()):
        return sorted(joins.get(last.operands, ())) + ([after] if last.predicated else [])
    return [after]


def cycles(nodes, next_of):
    """The strongly connected components that contain a cycle (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []
    for root in nodes:
        work = [] if root in index else [(root, iter(next_of(root)))]
        while work:
            node, rest = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
            for to in rest:
                if to not in index:
                    work.append((to, iter(next_of(to))))
                    break
                if to in stack:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    part, stack[at:] = set(stack[at:]), []
                    if len(part) > 1 or node in next_of(node):
                        found.append(part)
    return found


def loops_of(blocks, nodes, sign, banned=frozenset(), depth=0):
    """Yields the depth and the blocks of a trip of each loop among `nodes`, outer loops first."""
    def next_of(node):
        return [to for to in blocks[node].next if to in nodes and to not in banned]

    for loop in sorted(cycles(sorted(nodes), next_of), key=min):
        entered = {to for node in blocks.keys() - loop for to in blocks[node].next if to in loop}
        header = min(entered or loop)
        yield depth, trip(loop, header, blocks, sign)
        yield from loops_of(blocks, loop, sign, banned | {header}, depth + 1)


def trip(loop, header, blocks, sign):
    """The way from the header back to it: see the top."""
    inner = cycles(sorted(loop), lambda node: [to for to in blocks[node].next if to in loop and to != header])
    home = {node: -1 - i for i, part in enumerate(inner) for node in part}  # an inner loop is one node
    following, ends = {}, set()
    for node in loop:
        for to in blocks[node].next:
            if to == header:
                ends.add(home.get(node, node))
            elif to in loop and home.get(to, to) != home.get(node, node):
                following.setdefault(home.get(node, node), set()).add(home.get(to, to))

    def own(node):
        instructions = blocks[node].instructions if node >= 0 else []
        return 100_000 * sum(one.global_bytes() for one in instructions) + sign * len(instructions)

    best = {}  # of each node: the cost of the best way to the header, and the next node; None: no way
    work = [home.get(header, header)]
    while work:
        missing = [to for to in following.get(work[-1], ()) if to not in best]
        if missing:
            work += missing
            continue
        node = work.pop()
        ways = [(best[to][0], to) for to in following.get(node, ()) if best[to]] + ([(0, None)] if node in ends else [])
        most = max(ways, key=lambda way: way[0], default=None)
        best[node] = most and (most[0] + own(node), most[1])
    way, node = [], home.get(header, header)
    while node is not None and best[node]:
        way += [node] if node >= 0 else []
        node = best[node][1]
    return way


def row(name, depth, way):
    """A loop's row; None if it accesses no memory."""
    count = Counter(one.pipe for one in way)
    moved = sum(one.global_bytes() for one in way)
    if not any(one.base[:2] in ("LD", "ST") and one.pipe == "lsu" for one in way):
        return None
    # 32 lanes move 4 bytes each per clock: an access of 16 bytes takes four clocks.
    accesses = sum(max(one.width() // 4, 1) if one.base != "SHFL" else 1 for one in way if one.pipe == "lsu")
    use = {**count, "issue": len(way), "fp32": count["fp32"] + count["imad"], "lsu": accesses}
    slowest = max(LANES, key=lambda pipe: use.get(pipe, 0) / LANES[pipe])
    rate = f"{moved * LANES[slowest] / use[slowest]:.1f}" if moved else "-"
    spilled = sum(one.base in ("LDL", "STL") for one in way)
    return [f"`{name}`", f"{'-' * depth}{way[0].address:#x}", moved, len(way), *(count[pipe] for pipe in PIPES),
            spilled, f"{rate} ({slowest})"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="", metavar="PATTERN")
    parser.add_argument("--avoid", default="$^", metavar="PATTERN")
    parser.add_argument("--shortest", action="store_true")
    parser.add_argument("--path", action="store_true")
    parser.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args()
    for tool in ("cuobjdump", "nvdisasm", "c++filt"):
        if shutil.which(tool) is None:
            print(f"kernel_loops: {tool} is not in PATH", file=sys.stderr)
            return 2
    print("| kernel | loop | bytes | all | " + " | ".join(PIPES) + " | spilled | bytes per clock |")
    print("|---|---|" + "---:|" * (len(PIPES) + 4))
    for name, body in (function for path in args.files for function in functions(path)):
        if not re.search(args.kernels, name):
            continue
        blocks = blocks_of(body)
        wide = any(one.global_bytes() == 16 for one in body)
        allowed = {at for at, block in blocks.items() if not block.avoided(re.compile(args.avoid), wide)}
        for block in blocks.values():
            block.next = [to for to in block.next if to in allowed]
        for depth, way in loops_of(blocks, allowed, -1 if args.shortest else 1):
            instructions = [one for at in way for one in blocks[at].instructions]
            cells = instructions and row(name, depth, instructions)
            if cells:
                print("| " + " | ".join(str(cell) for cell in cells) + " |")
                if args.path:
                    print(*instructions, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
