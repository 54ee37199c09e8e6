"""The files of the repository, and the folders that its programs may empty."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def files(*patterns, others=True):
    """The tracked files and, with `others`, untracked files that git does not ignore. Exits with status
    77 if git cannot list them."""
    command = ["git", "ls-files", "-z", "--cached", *(["--others", "--exclude-standard"] if others else []),
               "--", *patterns]
    try:
        out = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: git cannot list the files of {ROOT}: {getattr(error, 'stderr', None) or error}".rstrip())
        sys.exit(77)
    return sorted(name for name in set(out.split("\0")) if name and (ROOT / name).is_file())


def claim(folder, name, *kept):
    """Creates and marks `folder` as one that the program `name` may empty. Exits with an error if it
    holds files that the program did not write, or one of the folders `kept`."""
    marker = folder / f".tessera-{name}"
    for path in kept:
        if path.resolve().is_relative_to(folder.resolve()):
            sys.exit(f"error: '{folder}' contains {path} and would be emptied: name another folder")
    if folder.exists() and not marker.is_file() and (not folder.is_dir() or any(folder.iterdir())):
        sys.exit(f"error: '{folder}' would be emptied but lacks {marker.name}: name a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("This folder is emptied by the program that made it.\n", encoding="utf-8")
    return marker
