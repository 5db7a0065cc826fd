"""`recommend`: the best method for a cluster, with all methods tuned with the same budget, and the reason."""

from dmlcore.experiments.recommendation.recommend import recommend
from dmlcore.experiments.recommendation.result import Recommendation

__all__ = ["Recommendation", "recommend"]
