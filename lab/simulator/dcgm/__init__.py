"""dcgm-exporter of the simulated nodes: its series, and the models behind their values.

Nothing is measured: ``device``, ``load`` and ``figures`` describe the models. Series, labels and the parsing
of the counters' csv are those of dcgm-exporter 4.5 (github.com/NVIDIA/dcgm-exporter).
"""
