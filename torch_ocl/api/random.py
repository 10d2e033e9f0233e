"""Random numbers: the devices' generators, Philox with 16 bytes of state (seed, offset)."""

from collections.abc import Iterable

import torch

from torch_ocl import _C
from torch_ocl.api.device_arguments import DeviceLike, begin_use, existing_device_index


def default_generator(device: DeviceLike = None) -> torch.Generator:
    """The generator that random ops on a device use if they are given none.

    Neither this nor its state and seed initialise OpenCL.
    """
    return _C.default_generator(existing_device_index(device))


def get_rng_state(device: DeviceLike = "ocl") -> torch.Tensor:
    """The state of a device's generator: 16 bytes, a uint8 tensor [16] on the CPU."""
    begin_use()
    return default_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators, in the order of their indices."""
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "ocl") -> None:
    """Sets the state of a device's generator to one that get_rng_state() gave.

    Raises RuntimeError or TypeError for what is no such state.
    """
    default_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _is_usable() -> bool:
    return _C.device_count() > 0 and not _C.is_in_bad_fork()


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator; does nothing if there is no device, or in a forked
    child that can't use it."""
    if _is_usable():
        default_generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices, also of those not in use yet.

    torch.manual_seed calls it. Does not initialise OpenCL.
    """
    seed = int(seed)
    if not -(2**63) <= seed < 2**64:
        raise RuntimeError(f"the seed {seed} is not in [-2**63, 2**64)")
    _C.seed_all(seed % 2**64)


def seed() -> None:
    """Seeds the current device's generator with a number that is different each time; does nothing
    where manual_seed() doesn't."""
    if _is_usable():
        default_generator().seed()


def seed_all() -> None:
    """As seed(), one number for all devices."""
    generator = torch.Generator()
    manual_seed_all(generator.seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    begin_use()
    return default_generator().initial_seed()
