"""Clusters: how fast workers and links are, what varies, and what breaks."""

from dmlcore.cluster.cluster import Cluster

__all__ = ["Cluster"]
