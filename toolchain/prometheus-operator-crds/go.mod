module gpuform.io/toolchain/prometheus-operator-crds

go 1.26.5

// Nothing of it is compiled: it holds the CRDs that the chart kube-prometheus-stack brings.
require github.com/prometheus-operator/prometheus-operator v0.92.0
