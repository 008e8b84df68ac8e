# The book, by Sphinx 5.3 and MyST 0.18 of Debian 12: /usr/bin/sphinx-build -W -n -b html book build/book/html
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

project = "The Algebra of Speed"
author = "the founders of Fathom"
copyright = "2026"
version = release = "1"
extensions = ["myst_parser", "algebra"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "smartquotes"]
myst_dmath_double_inline = True
myst_heading_anchors = 3
exclude_patterns = ["_ext", "_theme", "exercises", "readers", "widgets"]
nitpicky = True
numfig = True
numfig_format = {"figure": "Figure %s"}
numfig_secnum_depth = 1
math_number_all = False
html_math_renderer = "katex_at_build"
html_theme_path = ["_theme"]
html_theme = "algebra"
html_title = "The Algebra of Speed"
html_static_path = ["_theme/algebra/static/book.css"]  # of the site it is the theme's; the e-book wants it too
epub_css_files = ["book.css"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # it would fetch the pages, which a page of a folder may not
html_permalinks_icon = "¶"
pygments_style = "friendly"
highlight_language = "none"
epub_show_urls = "no"
epub_basename = "the-algebra-of-speed"
suppress_warnings = ["epub.unknown_project_files"]
