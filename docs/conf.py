"""How the documentation site is built: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_parts"), str(HERE.parent / "src")]

import domainadaptor as da  # noqa: E402

project = "DomainAdaptor"
author = "the authors of DomainAdaptor for PyTorch"
copyright = "the authors; MIT license"
version = release = da.__version__
# The three last ones are in docs/_parts.
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "mathml", "cards", "summary"]
exclude_patterns = ["_parts"]
nitpicky = False

html_theme = "furo"
html_title = f"DomainAdaptor {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_math_renderer = "mathml"

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the tests run the notebooks; the site shows their stored outputs
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # they come from another host

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
