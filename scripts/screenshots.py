#!/usr/bin/env python3
"""Makes two runs, and from their reports the pictures of docs/images (scripts/screenshots.sh).

  screenshots.py COMMAND SCRATCH IMAGES

COMMAND is tessera; the runs' reports stay in SCRATCH, the pictures go to IMAGES.
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import chromium  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
MODEL = "--layers 6 --hidden 256 --heads 8 --seq 128".split()
RUNS = {
    "comparison.html": ["compare", "--data", "docs", *MODEL, "--ranks", "4", "--batch", "2", "--steps", "8",
                        "--strategies", "dp,ddp,zero1,zero2,zero3"],
    "pipeline.html": ["train", "--data", "docs", *MODEL, "--ranks", "8", "--mesh", "pipe=2,shard=2,tensor=2",
                      "--strategy", "zero1", "--batch", "1", "--accumulate", "6", "--schedule", "1f1b",
                      "--steps", "4"],
}
MARGIN = 12
# By picture: its report, the headings of the parts that it shows, its width.
PICTURES = {
    "report.png": ("comparison.html", ["Peak of the fullest rank", "Memory of each rank", "One step"], 1100),
    "memory.png": ("comparison.html", ["Memory of each rank", "Model state against theory"], 1100),
    "mesh.png": ("pipeline.html", ["The mesh"], 760),
    "schedule.png": ("pipeline.html", ["The pipeline"], 1100),
}
# Hides the other parts, and returns where the remaining parts begin and end.
SHOWN = """(titles => {
  const parts = [...document.querySelectorAll('main > *')];
  const title = part => part.querySelector('h2')?.firstChild?.textContent.trim();
  const first = part => part.tagName === 'HEADER' && titles.length > 2;
  const kept = parts.filter(part => titles.includes(title(part)) || first(part));
  parts.forEach(part => { part.style.display = kept.includes(part) ? '' : 'none'; });
  const boxes = kept.map(part => part.getBoundingClientRect());
  return {count: kept.length - (titles.length > 2 ? 1 : 0),
          top: Math.min(...boxes.map(box => box.top + scrollY)),
          bottom: Math.max(...boxes.map(box => box.bottom + scrollY))};
})"""


def main():
    command, scratch, images = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    # A report shows its command: use names that are short, and the same everywhere.
    if not (scratch / "docs").exists():
        (scratch / "docs").symlink_to(ROOT / "docs")
    for report, arguments in RUNS.items():
        subprocess.run([command, *arguments, "--report", report], cwd=scratch, check=True,
                       stdout=subprocess.DEVNULL)
    with chromium.Browser() as browser:
        for picture, (report, titles, width) in PICTURES.items():
            browser.size(width, 1200)
            complaints = browser.open((scratch / report).as_uri())
            if complaints:
                sys.exit(f"{report}: {complaints}")
            shown = browser.value(f"{SHOWN}({titles})")
            if shown["count"] != len(titles):
                sys.exit(f"{report} has {shown['count']} of the parts {titles}")
            browser.picture(images / picture, (0, shown["top"] - MARGIN, width,
                                               shown["bottom"] - shown["top"] + 2 * MARGIN))
            print(f"{images / picture}: {', '.join(titles)}")


main()
