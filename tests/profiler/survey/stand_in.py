"""A library whose architectures fail in every way that a stranger's code can; imported by the survey's workers."""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import timm
import torch
from torch import nn

from gearshift.profiler.survey.library import Built, Facts

TROUBLE = ("raises", "exits", "is killed", "crashes", "hangs", "connects", "looks up", "downloads", "leaves")
GOOD = tuple(f"net{number}" for number in range(6))
BUILT = "SURVEY_TEST_BUILT"
"""Names a file that every build is noted in."""


class Needy(nn.Module):
    """Asks for a value, which there is none of on the meta device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()


def network(width: int) -> nn.Module:
    """3 convolutions and a Linear, one of each kind of grouping."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(width, width, 5, padding=2, groups=width),
        nn.Conv2d(width, 2 * width, 1, groups=2),
        nn.Flatten(),
        nn.Linear(2 * width * 16, 10),
    )


class StandIn:
    """Six networks that work, one that cannot be run, and several that cannot be built."""

    def names(self) -> Sequence[str]:
        return [*GOOD, "needy", *TROUBLE]

    def facts(self, name: str) -> Facts:
        return Facts(family="stand-ins", year=2020, year_from="own documentation", weights=2)

    def build(self, name: str) -> Built:
        if BUILT in os.environ:
            with Path(os.environ[BUILT]).open("a") as stream:
                stream.write(f"{name}\n")
        _trouble(name)
        print("libraries print")
        module = Needy() if name == "needy" else network(4 + 2 * int(name.removeprefix("net")))
        return Built(module=module.eval(), pixels=torch.empty(1, 3, 8, 8))


def _trouble(name: str) -> None:
    match name:
        case "raises":
            raise RuntimeError("no such\nlayer")
        case "exits":
            os._exit(3)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs":
            time.sleep(60)
        case "connects":
            socket.create_connection(("127.0.0.1", 9))
        case "looks up":
            socket.getaddrinfo("huggingface.co", 443)
        case "downloads":
            timm.create_model("resnet10t", pretrained=True)
        case "leaves":
            sys.exit(7)
