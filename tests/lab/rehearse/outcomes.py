from __future__ import annotations

from collections import Counter

from gpuform.usage.node_prices import Amount, Machines, PoolOutcome
from gpuform.usage.queues import QueuedWorkload, QueueOutcome, QueueStatus, Transition, Usage
from gpuform.usage.rehearsal import (
    Cell,
    JobResult,
    Load,
    NodePicture,
    NodeTimeline,
    Outcome,
    PendingPod,
    Refusal,
    RemovedNode,
    ScrapeResult,
    Shrink,
    Step,
    Totals,
    WorkloadAtLoad,
)

NODE = "ip-10-64-0-5.us-west-2.compute.internal"
WAITS = PendingPod(
    "science",
    "train-<b>",
    "train",
    "mig",
    {"cpu": 2.0},
    "Karpenter launches no node: at its limit",
    ("karpenter: no",),
)

COLD = {"asked": 14.8, "created": 15.3, "node requested": 16.0, "node launched": 16.5, "node joined": 18.4}
COLD |= {"node ready": 24.1, "running": 25.2}
ARTS = QueueStatus("arts", 1, (Usage("mig", "nvidia.com/mig-1g.5gb", 2, 2, 0),), ())
TURNS = (Transition(60.04, "created"), Transition(61.0, "admitted"), Transition(70.0, "evicted", "Preempted"))
TURNS += (Transition(80.0, "admitted"), Transition(90.0, "finished"))
AGAIN = QueuedWorkload("arts", "arts", "Job", "again", TURNS)
STILL = QueuedWorkload("arts", "arts", "Job", "still<b>", (Transition(60.0, "created"),), "no room")


def drawn(name: str, pool: str, rows: int, each: int) -> NodePicture:
    """A node with identically partitioned GPUs; the first slice of each is taken."""
    row = (Cell("mig-1g.5gb", "science", "train-abc-12345", "train"), *(Cell("mig-1g.5gb"),) * (each - 1))
    return NodePicture(name, pool, "p4d.24xlarge", "on-demand", "us-west-2a", 21.96, (row,) * rows, ())


def outcome(nodes: int = 2, pending: tuple[PendingPod, ...] = (WAITS,)) -> Outcome:
    """A rehearsal of an AWS stack with a capacity shortage, a pending pod and a removed node."""
    mig = PoolOutcome(
        name="mig",
        fixed=False,
        machines=(Machines("p4d.24xlarge", "on-demand", "us-west-2a", nodes, 21.9576),),
        resources={"cpu": Amount(96, 10.5), "nvidia.com/mig-1g.5gb": Amount(14, 2)},
        usd_per_hour=21.9576 * nodes,
        idle_usd_per_hour=11.0,
        launched=nodes + 1,
        in_vain=("i-0123456789abcdef0",),
    )
    unknown = Machines("p5e.48xlarge", "on-demand", "", 1, None)
    fixed = PoolOutcome("h200", True, (unknown,), {}, None, None, 1, ())
    lines = [
        NodeTimeline(f"{NODE}{n}", "mig", "p4d.24xlarge", 21.9576, 40.0 + n, 52.0 + n, None, False)
        for n in range(nodes)
    ]
    lines[0] = NodeTimeline(NODE, "mig", "p4d.24xlarge", 21.9576, 40.0, 52.0, 118.0, False)
    gone = RemovedNode(
        NODE, "mig", "p4d.24xlarge", 21.9576, "no pod was left on it", ("Disrupting Node: Empty",)
    )
    return Outcome(
        stack="lab",
        kind="aws",
        way="aws",
        steps=(Step("control plane", 5.04), Step("pods placed", 17.25)),
        pools=(fixed, mig),
        pods=3,
        placed=3 - len(pending),
        pending=pending,
        nodes=(drawn("h200-0", "h200", 1, 1), *(drawn(f"{NODE}{n}", "mig", 8, 7) for n in range(nodes))),
        timeline=(NodeTimeline("h200-0", "h200", "p5e.48xlarge", None, 1.0, 1.0, None, True), *lines),
        simulated=("AWS",),
        real=("Karpenter",),
        prices="list prices of us-east-1, 2026-07-20, without volumes",
        seconds=130.0,
        played=("no capacity for p4d.24xlarge in us-west-2b",),
        refusals=(Refusal("p4d.24xlarge", "us-west-2b", "on-demand", 3),),
        jobs=(JobResult("science", "train", 1, 2),),
        queues=(QueueOutcome(ARTS, 1.5, (AGAIN, STILL), 125.0),),
        shrink=Shrink(Totals(3, 2, 43.9), Totals(2, 1, 21.96), (gone,), ("h200-0: stays",), "as declared"),
        measured=ScrapeResult(nodes + 1, ("h200-0",)),
        loads=(
            Load(
                qps=400.0,
                seconds=91.2,
                workloads=(WorkloadAtLoad("serving", "triton", 8, 7, True, COLD, ()),),
                nodes=4,
                bought=Counter({"g4dn.xlarge": 3}),
                removed={},
                usd_per_hour=1.578,
            ),
        ),
        shortened=("triton's cooldown is 10 s instead of 300 s",),
    )
