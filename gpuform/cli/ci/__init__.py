"""Commands for the workflows besides ``gpuform``'s own: ``python -m gpuform.cli.ci``."""
