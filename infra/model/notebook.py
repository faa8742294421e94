"""Notebooks: their editors with pinned images, the home volume, and when an idle one is stopped.

RStudio is refused: its image (rocker/rstudio) starts its init system as root, which Pod Security restricted
forbids (rocker-org/rocker-versioned2, issues 888 and 882: "not an image intended for such use").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from infra import versions
from infra.model.amounts import Memory
from infra.model.base import Count, Model, ObjectName, WorkloadName
from infra.model.errors import InputError

CULLER = "gpuform-notebooks"
"""Namespace of the program that stops idle notebooks."""
LEAST_CPU, LEAST_MEMORY = "500m", "1Gi"
"""What Kubeflow's form of a new notebook requests (kubeflow, spawner_ui_config.yaml: 0.5 and 1.0Gi)."""
_LONGEST_IDLE = 7 * 1440
"""Minutes; the bound of a week is ours."""


@dataclass(frozen=True)
class Editor:
    """Facts of an editor's image: its port, the user's home, the variable that has the password.

    Both run as user 1000: jupyter/docker-stacks, images/docker-stacks-foundation/Dockerfile (NB_UID);
    coder/code-server, ci/release-image/Dockerfile.
    """

    image: str
    port: int
    home: str
    password: str


EDITORS: Mapping[str, Editor] = {
    "jupyterlab": Editor(versions.JUPYTERLAB_IMAGE, 8888, "/home/jovyan", "JUPYTER_TOKEN"),
    "vscode": Editor(versions.CODE_SERVER_IMAGE, 8080, "/home/coder", "PASSWORD"),
}
SETTINGS = "NOTEBOOK_ARGS"
"""Variable with further arguments of JupyterLab (docker-stacks, start-notebook.py)."""
IDLE_SECONDS = "CODE_SERVER_IDLE_TIMEOUT_SECONDS"
"""Variable of code-server 4.106 and newer (its FAQ)."""
OURS = (SETTINGS, IDLE_SECONDS, "HASHED_PASSWORD", *(one.password for one in EDITORS.values()))
"""Variables that decide on access and idle time."""


def _editor(value: Any) -> Any:
    if value == "rstudio":
        fact = "its image starts as root, which Pod Security restricted forbids"
        raise InputError("", fact, "use jupyterlab, with an image of your own that has RStudio inside")
    return value


class Home(Model):
    """A volume for the user's home; it stays when the notebook stops, is changed, or is removed."""

    size: Memory = Field(
        description="Size of a new volume; enlarge an existing one by its PersistentVolumeClaim."
    )
    storage_class: ObjectName | None = Field(
        default=None, description="Its storage class; the cluster's default if left out."
    )


class Cull(Model):
    """The editor ends when it is idle; the notebook is then scaled to 0, and its GPU is free."""

    idle_minutes: Annotated[Count, Field(ge=2, le=_LONGEST_IDLE)] = Field(
        description="Minutes without use. Use is a page of the editor that is open and visible and, in "
        "JupyterLab, a kernel that computes; a program in a terminal is not."
    )


class Notebook(Model):
    """The keys that only notebooks have."""

    editor: Annotated[Literal["jupyterlab", "vscode"], BeforeValidator(_editor)] = Field(
        description="What runs in it; its image is pinned."
    )
    user: WorkloadName = Field(
        description="Who uses it, a label of its pod; a user has one notebook in a namespace. Another user "
        "gets another home."
    )
    secret: ObjectName | None = Field(
        default=None,
        description="Secret in its namespace with the key password, which you create: the token of "
        "JupyterLab, the password of VS Code. If left out, the editor generates one.",
    )
    home: Home | None = Field(
        default=None, description="Without it, files are lost whenever the pod is replaced."
    )
    cull: Cull | None = Field(default=None, description="If left out, the notebook keeps its GPU while idle.")

    @model_validator(mode="before")
    @classmethod
    def _image_of_the_editor(cls, data: Any) -> Any:
        if isinstance(data, dict) and "image" not in data and data.get("editor") in EDITORS:
            return {**data, "image": EDITORS[data["editor"]].image}
        return data

    @model_validator(mode="after")
    def _keeps_its_files(self) -> Notebook:
        if self.cull and not self.home:
            fact = "given without home: a stopped notebook would lose its files"
            raise InputError("cull", fact, "add home: {size: 10Gi}, or leave cull out")
        return self

    @property
    def facts(self) -> Editor:
        return EDITORS[self.editor]
