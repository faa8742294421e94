"""Existing clusters."""

from gpuform.clouds.cloud import Cloud
from gpuform.clouds.existing.destroy import ExistingTeardown
from gpuform.clouds.existing.preflight import checks
from gpuform.stack.preflight import Preflight

EXISTING = Cloud(preflight=Preflight(checks), teardown=ExistingTeardown)
