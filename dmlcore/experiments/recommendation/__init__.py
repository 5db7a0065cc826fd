"""`recommend`: the best method for a cluster, with all methods tuned with the same budget, and the reason."""

from dmlcore.experiments.recommendation.recommend import Recommendation, recommend
