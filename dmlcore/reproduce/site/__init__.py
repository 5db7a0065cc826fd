"""The documentation site: pages of `docs/`, results from the ledgers, executed notebooks, an API reference.

`command` is the command line, `build` calls Sphinx and puts the site in place, `source` gathers what Sphinx
reads, and `extension` is what it adds to Sphinx.
"""
