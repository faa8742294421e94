"""Programs that run inside the cluster, carried there as text; nothing of ours imports them, nor they us."""
