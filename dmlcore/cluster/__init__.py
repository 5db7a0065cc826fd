"""Clusters: speeds of workers and links, how they vary, and faults."""

from dmlcore.cluster.cluster import Cluster

__all__ = ["Cluster"]
