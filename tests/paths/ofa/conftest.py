"""One supernet with random weights and statistics that hide nothing, and small checkpoint files."""

import pytest
import torch

from gearshift.paths.ofa import Supernet


def random_supernet(seed: int = 0) -> Supernet:
    """Statistics, scales (of either sign) and shifts that matter; logits of about 1."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        supernet = Supernet()
        for name, tensor in supernet.state_dict().items():
            if name.endswith(("running_mean", "bn.bias")):
                tensor.normal_(0, 0.3)
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2)
            if name.endswith("bn.weight"):
                tensor.uniform_(0.3, 1).mul_(torch.randint(0, 8, tensor.shape).sign() * 2 - 1)
    return supernet


@pytest.fixture(scope="session")
def supernet() -> Supernet:
    """Only to be read."""
    return random_supernet()


@pytest.fixture
def own_supernet() -> Supernet:
    """One that a test may change."""
    return random_supernet(1)
