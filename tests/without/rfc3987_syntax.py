"""Stands in for a package that compiles grammars for two seconds, in every process of Ray.

It comes with JupyterLab, and Ray imports it through jsonschema, which does without where it is missing.
"""

raise ImportError("Ray needs it for nothing")
