"""The engine ``ray`` of extraction: batches go to the workers of a Ray cluster, records come back."""

from vlcli_ray.cluster import RayCluster
