"""dcgm-exporter of the simulated nodes: which series it has, and the models behind their values.

Nothing here is measured. What each figure is made of stands in ``device``, ``load`` and ``figures``; the
series, their labels and how the counters' csv is read are those of dcgm-exporter 4.5
(github.com/NVIDIA/dcgm-exporter).
"""
