# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the site; tools/site/build.py calls it."""

project = "pipetwin"
author = "the authors of pipetwin"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_title = "pipetwin"
html_static_path = ["static"]
html_css_files = ["pipetwin.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
# A page that is opened from disk may not read another: results of a search are titles and headings.
html_show_search_summary = False
myst_heading_anchors = 6
myst_all_links_external = False
# Anchors in HTML and names of languages that Pygments does not have; build.py follows every link itself.
suppress_warnings = ["myst.ref", "myst.xref_missing", "myst.xref_ambiguous", "myst.header", "misc.highlighting_failure"]
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "monokai"
