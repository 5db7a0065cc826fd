"""A study: which method reaches a target first, each at its best settings, by how much, and how sure that is.

`space` says what is searched, `search` finds the best settings, `judging` compares them on other seeds, and
`result` tells what was found.
"""

from dmlcore.experiments.study.result import Study as Study
from dmlcore.experiments.study.space import Space as Space
from dmlcore.experiments.study.space import space as space
from dmlcore.experiments.study.study import study as study
