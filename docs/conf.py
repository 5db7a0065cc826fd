"""How Sphinx makes the site; `python3 paper_repro.py docs` gathers what it reads, and calls it."""

project = "dmlcore"
author = "the dmlcore authors"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "dmlcore.reproduce.site.extension",
]
default_role = "py:obj"
nitpicky = True
# Types of other packages have no page here; what docstrings have in backquotes may be any code.
nitpick_ignore_regex = [("py:.*", r"(?!dmlcore\.).*"), ("py:obj", r"[\s\S]*")]
smartquotes = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_render_markdown_format = "myst"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 90
napoleon_numpy_docstring = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_title = "dmlcore"
html_theme = "furo"
pygments_dark_style = "github-dark"  # the theme's own underlines modules
html_math_renderer = "mathml"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
