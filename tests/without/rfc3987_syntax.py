"""Stands in for a package that compiles grammars for two seconds, in every process of the tests.

It comes with JupyterLab; jsonschema imports it, and does without where it is missing.
"""

raise ImportError("no test needs it")
