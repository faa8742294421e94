"""Programs that run in pods, deployed as text in a ConfigMap. They do not import gpuform, nor it them."""
