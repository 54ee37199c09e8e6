#!/usr/bin/env python3
"""What run_pages.py refuses: pages with something wrong, and folders that it has not made.

  refusals.py BUILD

The status is 1 where it accepts one of them, or runs what would write beside its copy.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

RUN_PAGES = Path(__file__).with_name("run_pages.py")
RUN = ["echo ok; touch ../x", "cat text.txt;touch ../x", "echo $(touch ../x)", "echo `touch ../x`",
       'echo "a\n$(touch ../x)"', "echo 'a\nb';touch ../x", "echo a#b; touch ../x", "echo a\\\\\ntouch ../x",
       "echo $'\\'' ; touch ../x; echo '", "echo a;setsid touch ../x &", "echo a & touch ../x", "echo a > ../x",
       "(touch ../x)", "cat <(touch ../x)", "echo 'open"]
CHECKED = ["cmake --preset=nosuch", "cmake --preset nosuch", "cmake --build build --target=nosuch",
           "build/release/examples/nosuch", "tests/nosuch.py", "python3 scripts/nosuch.py", "tessera train --nosuch"]
PAGES = [*(f"```sh\n{block}\n```\n" for block in RUN),
         *(f"<!-- not run: why -->\n```sh\n{block}\n```\n" for block in CHECKED),
         "<!-- not run: why -->\n```sh\ntrue\n```\n\n<!-- printed -->\n```text\nno\n```\n",
         "```bash\necho ok\n```\n", "~~~sh\necho ok\n~~~\n", "```\necho ok\n```\n"]


def run(build, folder, *pages):
    options = [option for page in pages for option in ("--page", str(page))]
    return subprocess.run([sys.executable, "-B", RUN_PAGES, build, folder, *options], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)


def main():
    build, wrong = Path(sys.argv[1]).resolve(), []
    with tempfile.TemporaryDirectory(prefix="refusals.") as name:
        folder = Path(name)
        pages = [folder / f"page-{number}.md" for number in range(len(PAGES))]
        for page, text in zip(pages, PAGES):
            page.write_text(text, encoding="utf-8")
        kept = folder / "kept"
        kept.mkdir()
        (kept / "file").write_text("kept", encoding="utf-8")
        for refused in (kept, folder):
            done = run(build, refused, pages[0])
            if done.returncode == 77:
                print(done.stdout, end="")
                return 77
            if done.returncode != 1 or "error: " not in done.stdout or not (kept / "file").is_file():
                sys.exit(f"{refused} is emptied:\n{done.stdout}")  # its pages may be deleted too
        done = run(build, folder / "copy", *pages)
        wrong += [f"accepted:\n{text}" for page, text in zip(pages, PAGES) if f"{page}:" not in done.stdout]
        if (folder / "x").exists():
            wrong.append("something is written beside the copy")
        if wrong:
            wrong.append(done.stdout)
    print("\n".join([*wrong, f"{len(PAGES)} pages, {len(wrong)} findings"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
