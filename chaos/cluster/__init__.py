"""Clusters to break: so far real Ray nodes on this machine."""
