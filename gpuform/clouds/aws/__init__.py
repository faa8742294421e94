"""EKS clusters."""

from gpuform.clouds.aws.destroy import AwsTeardown
from gpuform.clouds.aws.preflight import checks
from gpuform.clouds.aws.preflight.versions import refusals
from gpuform.clouds.aws.preview import AwsPreview
from gpuform.clouds.aws.recover import AwsRecovery
from gpuform.clouds.cloud import Cloud
from gpuform.stack.cluster_access import ClusterAccess
from gpuform.stack.preflight import Preflight

AWS = Cloud(
    preflight=Preflight(checks, refusals=refusals),
    teardown=AwsTeardown,
    recovery=AwsRecovery(),
    preview=AwsPreview(),
    access=ClusterAccess(is_output=True),
)
