module gpuform.io/tests/crds

go 1.26.5

// Nothing of it is compiled: it holds CRDs against which manifests of tests are checked.
require (
	github.com/argoproj/argo-workflows/v3 v3.7.3
	github.com/kserve/kserve v0.17.0
	github.com/kubeflow/mpi-operator v0.6.0
	github.com/kubeflow/spark-operator/v2 v2.3.0
	github.com/kubeflow/trainer/v2 v2.2.1
	github.com/kubeflow/training-operator v1.9.3
	github.com/ray-project/kuberay/ray-operator v1.5.1
	sigs.k8s.io/jobset v0.10.1
	sigs.k8s.io/lws v0.7.0
)
