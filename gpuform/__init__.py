"""Infrastructure as code for GPU Kubernetes clusters.

Importing it makes the other packages of the installation importable: ``infra``, ``components``, ``lab`` and
``policies`` are in ``_bundle`` of a wheel, so that they shadow no other package of these names
(docs/adr/0018-installation-and-project.md).
"""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
INSTALLATION = next(filter(Path.is_dir, (_PACKAGE / "_bundle", _PACKAGE.parent)))
"""Folder of the program, charts, roles, policies and Go modules: in a wheel's package, or the checkout."""
if str(INSTALLATION) not in sys.path:
    sys.path.insert(0, str(INSTALLATION))
