"""dcgm-exporter of the simulated nodes; its series, labels and csv are those of dcgm-exporter 4.5.

Nothing is measured: ``device`` and ``load`` describe the models (github.com/NVIDIA/dcgm-exporter).
"""
