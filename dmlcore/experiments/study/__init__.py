"""A study: which method reaches a target first, each at its best settings, by how much, and how sure that is.

`space` says what is searched, `search` finds the best settings, and `judging` compares them on other seeds.
"""

from dmlcore.experiments.study.judging import Study
from dmlcore.experiments.study.space import Space, space
from dmlcore.experiments.study.study import study
