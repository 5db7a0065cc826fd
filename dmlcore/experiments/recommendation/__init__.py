"""Which method for a cluster: all tuned with one budget, judged on other seeds, and why the best is."""

from dmlcore.experiments.recommendation.recommend import recommend
from dmlcore.experiments.recommendation.result import Recommendation

__all__ = ["Recommendation", "recommend"]
