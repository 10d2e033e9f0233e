"""Cases of whole networks at sizes for GPUs. A call is ten steps without a wait between them."""

from benchmarks.cases.large_models import NETWORKS, step_of
from benchmarks.harness.case import add, wrapped

STEPS = 10


def steps_of(network):
    def make(device):
        step = step_of(network, device, wrapped)

        def call():
            for _ in range(STEPS):
                out = step()
            return out

        return call

    return make


for name, network in NETWORKS.items():
    add(
        name,
        "large",
        steps_of(network),
        repeats=STEPS,
        for_gpus=True,
        # Dropout and dropped paths draw other numbers.
        random=network.random,
        tolerance={"rtol": 5e-2, "atol": 5e-2},
    )
