"""Sphinx's settings for the site that scripts/site.sh builds; docs/site/build.py lays out its pages."""

from pathlib import Path

project = "Tessera"
html_title = "Tessera"
root_doc = "index"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = []

# Headings get the anchors that they have on GitHub.
myst_heading_anchors = 6

# A fence without a language is text.
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "monokai"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_domain_indices = False
html_use_index = False
# Quotes and dashes stay as they are typed: they are in commands too.
smartquotes = False
