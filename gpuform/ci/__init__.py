"""What the workflows run beside the ``gpuform`` commands: ``python -m gpuform.ci``."""
