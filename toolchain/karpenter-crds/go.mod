module gpuform.io/toolchain/karpenter-crds

go 1.26.10

// Nothing of it is compiled: it holds the chart karpenter-crd.
require github.com/aws/karpenter-provider-aws v1.14.3
