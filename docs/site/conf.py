"""The settings of the site's pages for Sphinx; `build.py` runs it."""

from typing import Any

from pygments.lexers.special import TextLexer

project = "Cutaway"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.graphviz"]
html_theme = "furo"
html_title = "Cutaway"
html_show_copyright = False
html_extra_path = ["extra"]  # the explorers
html_static_path = ["static"]
html_css_files = ["explorers.css"]
exclude_patterns = ["compiler_core", "kernel_magics", "extra", "static", "notebooks/workshop/source/*"]
exclude_patterns += ["notebooks/workshop/solutions/*"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_custom_formats = {}
nb_execution_mode = "off"  # a page that wants it says so; the notebooks are run by the tests
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

autodoc_typehints = "signature"
autodoc_member_order = "alphabetical"
napoleon_google_docstring = True
graphviz_output_format = "svg"
suppress_warnings = ["mystnb.unknown_mime_type"]


def setup(app: Any) -> None:
    """Pages have blocks in languages that Pygments does not know."""
    for name in ("mermaid", "ptx", "sass"):
        app.add_lexer(name, TextLexer)
