from __future__ import annotations

import machine
import mig
from machine import Card

# The CUDA version that a branch's driver prints; NVIDIA's release notes of each branch.
_CUDA = {
    450: "11.0",
    470: "11.4",
    510: "11.6",
    515: "11.7",
    525: "12.0",
    535: "12.2",
    545: "12.3",
    550: "12.4",
}
_CUDA |= {
    555: "12.5",
    560: "12.6",
    565: "12.7",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
    595: "13.2",
}
_LINE = f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+"


def cuda(driver: str) -> str:
    return _CUDA.get(int(driver.split(".")[0]), "N/A")


def overview(cards: list[Card], driver: str) -> str:
    """Output of nvidia-smi without arguments."""
    lines = [
        f"+{'-' * 89}+",
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda(driver):<9}|",
        f"|{_LINE[1:]}",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|",
    ]
    for card in cards:
        on, memory = mig.mode(card), f"{card.gpu.memory_mib:>7}MiB"
        name = card.gpu.product if len(card.gpu.product) <= 27 else f"{card.gpu.product[:24]}..."
        state = "On" if machine.persistence() else "Off"
        word = "N/A" if on is None else "Enabled" if on else "Disabled"
        lines += [
            f"|{card.index:>4}  {name:<27}{state:>6}  |   {card.bus} Off |                    0 |",
            f"| N/A   49C    P8             16W /   70W |       0MiB /{memory} |      0%      Default |",
            f"|                                         |                        |{word:>21} |",
            _LINE,
        ]
    empty = "|  No running processes found                                                             |"
    return "\n".join(
        [*lines, "", f"+{'-' * 89}+", f"| Processes:{' ' * 78}|", f"|{'=' * 89}|", empty, f"+{'-' * 89}+"]
    )


def instances(cards: list[Card]) -> str:
    rows = []
    for card in cards:
        assert card.gpu.mig is not None
        for number, (name, start) in enumerate(mig.placed(card), start=1):
            size = card.gpu.mig.profiles[name].memory_slices
            which = mig.number(card.gpu.mig, name)
            rows.append(
                f"|{card.index:>4}  MIG {name:<14}{which:>4}{number:>9}          {start}:{size}     |"
            )
    if not rows:
        return "No GPU instances found: Not Found"
    title = [
        "| GPU instances:                                        |",
        "| GPU   Name             Profile  Instance   Placement  |",
    ]
    edge = f"+{'-' * 55}+"
    return "\n".join([edge, *title, f"|{'=' * 55}|", *rows, edge])


def profiles(cards: list[Card]) -> str:
    rows = []
    for card in cards:
        assert card.gpu.mig is not None
        have = mig.layout(card)
        for name, profile in card.gpu.mig.profiles.items():
            most = len(profile.starts)
            which = mig.number(card.gpu.mig, name)
            free = f"{most - have[name]:>7}/{most}"
            rows.append(f"|{card.index:>4}  MIG {name:<14}{which:>4}{free}  {profile.memory_mib:>9}|")
    return "\n".join(["| GPU instance profiles:", *rows])
