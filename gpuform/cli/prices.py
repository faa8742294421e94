"""``gpuform prices``: the dated price list behind all costs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

from gpuform.checkout.errors import Failure, InputError
from gpuform.cli.output import say

app = typer.Typer(no_args_is_help=True, help="The dated price list used for all costs.")


@app.callback()
def prices() -> None:
    """The dated price list used for all costs."""


@app.command()
def refresh(region: Annotated[str, typer.Argument(help="AWS region, for example us-west-2.")]) -> None:
    """Fetch AWS's list prices of a region with your credentials (pricing:GetProducts) into infra/prices/.

    Commit the file: costs of stacks in that region then use it.
    """
    from gpuform.clients.aws.prices import fetch, save
    from infra.config import PRICES

    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", region):
        raise InputError("REGION", f"{region!r} is not an AWS region", "write it as us-west-2")
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError:
        raise InputError("botocore", "is not installed", "pip install 'gpuform[offline]'") from None
    try:
        client = botocore.session.get_session().create_client("pricing", region_name="us-east-1")
        found = fetch(client, region, datetime.now(UTC).date().isoformat(), say)
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise Failure("AWS Price List API", str(error), "check your AWS credentials and try again") from None
    if not found["usd_per_hour"]:
        raise Failure("AWS Price List API", f"has no machine in {region}", "check the region's name")
    file = save(PRICES, found)
    say(f"{len(found['usd_per_hour'])} machines in {file.relative_to(PRICES.parents[1])}")
