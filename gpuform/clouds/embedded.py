"""The embedded control plane: the engine destroys everything, and nothing is created at a cloud."""

from gpuform.clouds.cloud import Cloud
from gpuform.stack.destroy import Teardown
from gpuform.stack.preflight import nothing_to_check

EMBEDDED = Cloud(
    preflight=nothing_to_check(
        "the cluster runs on this machine: `gpuform doctor` without a stack checks it"
    ),
    teardown=Teardown,
)
