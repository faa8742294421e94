from __future__ import annotations

from gpuform.usage import rehearsal as seen
from gpuform.usage.node_prices import Amount, Machines, PoolOutcome
from gpuform.usage.queues import QueuedWorkload, QueueOutcome, QueueStatus, Transition, Usage

NODE = "ip-10-64-0-5.us-west-2.compute.internal"
LAUNCHES_NONE = "Karpenter launches no node: at its limit"
WAITS = seen.PendingPod(
    "science", "train-<b>", "train", "mig", {"cpu": 2.0}, LAUNCHES_NONE, ("karpenter: no",)
)
COLD = {"asked": 14.8, "created": 15.3, "node requested": 16.0, "node launched": 16.5, "node joined": 18.4}
COLD |= {"node ready": 24.1, "running": 25.2}
ARTS = QueueStatus("arts", 1, (Usage("mig", "nvidia.com/mig-1g.5gb", 2, 2, 0),), ())
TURNS = (Transition(60.04, "created"), Transition(61.0, "admitted"), Transition(70.0, "evicted", "Preempted"))
TURNS += (Transition(80.0, "admitted"), Transition(90.0, "finished"))
AGAIN = QueuedWorkload("arts", "arts", "Job", "again", TURNS)
STILL = QueuedWorkload("arts", "arts", "Job", "still<b>", (Transition(60.0, "created"),), "no room")


def drawn(name: str, pool: str, rows: int, each: int) -> seen.NodePicture:
    """A node with identically partitioned GPUs; the first slice of each is taken."""
    taken, free = seen.Cell("mig-1g.5gb", "science", "train-abc-12345", "train"), seen.Cell("mig-1g.5gb")
    gpus = ((taken, *(free,) * (each - 1)),) * rows
    return seen.NodePicture(name, pool, "p4d.24xlarge", "on-demand", "us-west-2a", 21.96, gpus, ())


def line(name: str, begin: float, ready: float, end: float | None = None) -> seen.NodeTimeline:
    return seen.NodeTimeline(name, "mig", "p4d.24xlarge", 21.9576, begin, ready, end, False)


def outcome(nodes: int = 2, pending: tuple[seen.PendingPod, ...] = (WAITS,)) -> seen.Outcome:
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
    empty = ("no pod was left on it", ("Disrupting Node: Empty",))
    gone = seen.RemovedNode(NODE, "mig", "p4d.24xlarge", 21.9576, *empty)
    scaled = seen.WorkloadAtLoad("serving", "triton", 8, 7, True, COLD, ())
    return seen.Outcome(
        stack="lab",
        kind="aws",
        way="aws",
        steps=(seen.Step("control plane", 5.04), seen.Step("pods placed", 17.25)),
        pools=(fixed, mig),
        pods=3,
        placed=3 - len(pending),
        pending=pending,
        nodes=(drawn("h200-0", "h200", 1, 1), *(drawn(f"{NODE}{n}", "mig", 8, 7) for n in range(nodes))),
        timeline=(
            seen.NodeTimeline("h200-0", "h200", "p5e.48xlarge", None, 1.0, 1.0, None, True),
            line(NODE, 40.0, 52.0, 118.0),
            *(line(f"{NODE}{n}", 40.0 + n, 52.0 + n) for n in range(1, nodes)),
        ),
        simulated=("AWS",),
        real=("Karpenter",),
        prices="list prices of us-east-1, 2026-07-20, without volumes",
        seconds=130.0,
        played=("no capacity for p4d.24xlarge in us-west-2b",),
        refusals=(seen.Refusal("p4d.24xlarge", "us-west-2b", "on-demand", 3),),
        jobs=(seen.JobResult("science", "train", 1, 2),),
        queues=(QueueOutcome(ARTS, 1.5, (AGAIN, STILL), 125.0),),
        shrink=seen.Shrink(
            seen.Totals(3, 2, 43.9), seen.Totals(2, 1, 21.96), (gone,), ("h200-0: stays",), "as declared"
        ),
        measured=seen.ScrapeResult(nodes + 1, ("h200-0",)),
        loads=(seen.Load(400.0, 91.2, (scaled,), 4, {"g4dn.xlarge": 3}, {}, 1.578),),
        shortened=("triton's cooldown is 10 s instead of 300 s",),
    )
