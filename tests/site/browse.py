#!/usr/bin/env python3
"""Opens every page of the documentation's site in a headless Chromium, at three widths.

  browse.py SITE [--pictures FOLDER] [PAGE...]

SITE is the folder that scripts/site.sh has filled. The status is 1 where a page has an error on its
console, asks the network for something, is wider than the window, or links to what is not there, and
where a search does not find what it should. It is 77 where there is no browser or no site. --pictures keeps a
picture of the top of each page at each width.
"""

import argparse
import sys
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import chromium  # noqa: E402

WIDTHS = (360, 820, 1440)
# A word, and a page that its search must find.
SEARCHES = {
    "hybrid": "hybrid.html",
    "reshard": "resharding.html",
    "ShardedModel": "api/engine.html",
    "tessera_last_error": "api/c.html",
    "checkpoint": "checkpoints.html",
    "bubble": "lessons/pipeline_bubbles.html",
}
# What makes the page wider than the window, if anything: the theme lets the text column scroll.
TOO_WIDE = """(() => {
  const around = [document.documentElement, document.body, ...document.querySelectorAll('.page, .main, .content')];
  const wide = Math.max(...around.map(element => element.scrollWidth - element.clientWidth));
  if (wide <= 1) return '';
  const scrolls = element => element && (['auto', 'scroll'].includes(getComputedStyle(element).overflowX)
    ? !around.includes(element) : scrolls(element.parentElement));
  const found = [...document.querySelectorAll('article *')].filter(
    element => element.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(element));
  return wide + ' px wider than the window: ' + (found[0] ? found[0].outerHTML.slice(0, 120) : '?');
})()"""
LINKS = """[...document.querySelectorAll('a[href]')].map(link => link.href)"""
# Missing anchors of links within this page.
DEAD_HERE = """[...document.querySelectorAll('a[href^="#"]')].map(link => link.getAttribute('href').slice(1))
  .filter(id => id && !document.getElementById(decodeURIComponent(id)))"""
SEARCH_DONE = """new Promise(resolve => {
  const look = () => {
    const summary = document.querySelector('#search-results .search-summary');
    const listed = [...document.querySelectorAll('#search-results ul.search li a')];
    const done = summary && /found|did not match/.test(summary.textContent);
    if (done) resolve(listed.map(link => link.getAttribute('href').split('?')[0].split('#')[0]));
    else setTimeout(look, 30);
  };
  look();
})"""


def pages(site):
    # Pages that show a file of the repository are alike: a few are enough.
    shown = sorted((site / "files").rglob("*.html"))
    return [path for path in sorted(site.rglob("*.html")) if path not in shown[5:]]


def look_at(browser, site, path, pictures):
    """Yields what is wrong with a page."""
    name = str(path.relative_to(site))
    browser.size(WIDTHS[0])
    for complaint in browser.open(path.as_uri()):
        yield f"{name}: {complaint}"
    for width in WIDTHS:
        browser.size(width)
        wide = browser.value(TOO_WIDE)
        if wide:
            yield f"{name} at {width}: {wide}"
        if pictures:
            browser.picture(pictures / f"{name.replace('/', '_').removesuffix('.html')}-{width}.png")
    for target in set(browser.value(LINKS)):
        if target.startswith("file://"):
            file = Path(urllib.parse.unquote(target.removeprefix("file://").split("#")[0].split("?")[0]))
            if not file.is_file():
                yield f"{name}: dead link {target}"
    for anchor in browser.value(DEAD_HERE):
        yield f"{name}: no anchor #{anchor}"


def search(browser, site):
    for word, wanted in SEARCHES.items():
        complaints = []
        try:
            complaints = browser.open(f"{(site / 'search.html').as_uri()}?q={word}")
            found = browser.value(SEARCH_DONE)
        except (OSError, TimeoutError) as error:
            yield f"the search for {word} does not end: {error}; {complaints}"
            return
        if wanted not in found:
            yield f"the search for {word} does not find {wanted}, but {found[:10]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    site = given.site.resolve()
    reason = chromium.missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    if not (site / "index.html").is_file():
        print(f"skipped: {site}/index.html is not there; scripts/site.sh builds it")
        return 77
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    chosen = [site / name for name in given.pages] or pages(site)
    wrong = []
    try:
        with chromium.Browser() as browser:
            for path in chosen:
                try:
                    wrong += look_at(browser, site, path, given.pictures)
                except (OSError, TimeoutError) as error:
                    wrong.append(f"{path.relative_to(site)}: {error}")
            if not given.pages:
                wrong += search(browser, site)
    except chromium.CannotStart as error:
        print(f"skipped: {error}")
        return 77
    searches = 0 if given.pages else len(SEARCHES)
    print("\n".join([*wrong, f"{len(chosen)} pages at {len(WIDTHS)} widths, {searches} searches, "
                            f"{len(wrong)} findings, {time.monotonic() - began:.0f} s"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
