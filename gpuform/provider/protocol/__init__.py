"""The engine's gRPC protocol: the stubs that the ``pulumi`` SDK ships, without the SDK around them.

Imported as ``pulumi.runtime.proto`` they bring all of ``pulumi`` along, which takes longer than the rest of a
plugin's start, and the engine starts its plugins one after the other. The stubs import only one another, so
their folder is the path of this package. They are the same classes under either name.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulumi.runtime.proto import engine_pb2 as engine_pb2
    from pulumi.runtime.proto import engine_pb2_grpc as engine_pb2_grpc
    from pulumi.runtime.proto import language_pb2 as language_pb2
    from pulumi.runtime.proto import language_pb2_grpc as language_pb2_grpc
    from pulumi.runtime.proto import plugin_pb2 as plugin_pb2
    from pulumi.runtime.proto import provider_pb2 as provider_pb2
    from pulumi.runtime.proto import provider_pb2_grpc as provider_pb2_grpc
    from pulumi.runtime.proto import status_pb2 as status_pb2

_sdk = find_spec("pulumi")  # finds the package, and does not import it
if _sdk is None or not _sdk.submodule_search_locations:
    raise ImportError("the Pulumi SDK is not installed; run 'make setup'", name="pulumi")
__path__ = [str(Path(_sdk.submodule_search_locations[0]) / "runtime" / "proto")]
