"""Programs that do wrong when a call fails, each in its way: the runner must see it."""

import os
import time

import torch

from tests.faults.scenarios import Scenario

ALL: dict = {}


def _careless(careless):
    def prepare():
        def step(device):
            try:
                return [torch.full((3,), 2.0, device=device).cpu() * 3]
            except RuntimeError as error:
                return careless(error)

        return step

    ALL[careless.__name__] = Scenario(prepare, {})


@_careless
def hides_it(error):
    return [torch.zeros(3)]


@_careless
def renames_it(error):
    raise ValueError("something is wrong") from None


@_careless
def keeps_memory(error):
    kept.append(torch.ones(1000, device="ocl"))
    return [torch.full((3,), 6.0)]


@_careless
def hangs(error):
    time.sleep(1000)


@_careless
def dies(error):
    os.abort()


kept: list = []
