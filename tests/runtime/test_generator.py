"""Generators: seeds, states, reservation of Philox counters."""

import threading

import pytest
import torch

from torch_ocl import _C


def state(generator):
    """(seed, offset) from the 16 bytes of a state."""
    return tuple(generator.get_state().view(torch.int64).tolist())


def test_a_new_generator_has_the_default_seed():
    generator = torch.Generator(device="ocl")
    assert generator.device == torch.device("ocl", torch.ocl.current_device())
    assert generator.initial_seed() == torch.Generator().initial_seed() == 67280421310721
    assert state(generator) == (67280421310721, 0)


def test_torch_manual_seed_seeds_all_devices():
    torch.manual_seed(1234)
    assert torch.ocl.initial_seed() == 1234
    assert state(torch.ocl.default_generator()) == (1234, 0)
    torch.manual_seed(-1)
    assert torch.ocl.initial_seed() == 2**64 - 1


def test_seed_functions():
    torch.ocl.manual_seed(5)
    assert torch.ocl.initial_seed() == 5
    torch.ocl.manual_seed_all(6)
    assert all(g.initial_seed() == 6 for g in torch.ocl.default_generators)
    torch.ocl.seed()
    first = torch.ocl.initial_seed()
    torch.ocl.seed_all()
    assert torch.ocl.initial_seed() != first
    for bad in (2**64, -(2**63) - 1):
        with pytest.raises(RuntimeError):
            torch.ocl.manual_seed_all(bad)


def test_states_round_trip():
    torch.ocl.manual_seed(99)
    _C.reserve_philox(0, 8)
    saved = torch.ocl.get_rng_state()
    assert saved.dtype == torch.uint8 and saved.numel() == 16 and saved.device.type == "cpu"
    _C.reserve_philox(0, 8)
    assert state(torch.ocl.default_generator()) == (99, 16)
    torch.ocl.set_rng_state(saved)
    assert state(torch.ocl.default_generator()) == (99, 8)
    everything = torch.ocl.get_rng_state_all()
    torch.ocl.manual_seed_all(1)
    torch.ocl.set_rng_state_all(everything)
    assert state(torch.ocl.default_generator()) == (99, 8)


def test_bad_states_are_refused():
    with pytest.raises(RuntimeError, match="wrong size"):
        torch.ocl.set_rng_state(torch.zeros(10, dtype=torch.uint8))
    with pytest.raises(TypeError):
        torch.ocl.set_rng_state(torch.zeros(4))
    with pytest.raises(RuntimeError, match="multiple of 4"):
        torch.ocl.set_rng_state(torch.tensor([1, 3]).view(torch.uint8))


def test_a_clone_goes_its_own_way():
    generator = torch.Generator(device="ocl").manual_seed(3)
    clone = generator.clone_state()
    generator.manual_seed(4)
    assert clone.initial_seed() == 3


def test_offsets_are_set_and_read():
    generator = torch.Generator(device="ocl").manual_seed(3)
    generator.set_offset(12)
    assert generator.get_offset() == 12
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_offset(3)


def test_reservations_are_multiples_of_four():
    torch.ocl.manual_seed(0)
    assert _C.reserve_philox(0, 1) == (0, 0)
    assert _C.reserve_philox(0, 5) == (0, 4)
    assert _C.reserve_philox(0, 4) == (0, 12)


def test_concurrent_reservations_do_not_overlap():
    torch.ocl.manual_seed(0)
    taken = []

    def take():
        taken.extend([_C.reserve_philox(0, 4)[1] for _ in range(1000)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(0, 16000, 4))


def test_fork_rng_restores_the_state():
    torch.ocl.manual_seed(11)
    with torch.random.fork_rng(device_type="ocl", devices=[0]):
        torch.manual_seed(12)
    assert torch.ocl.initial_seed() == 11


def test_generators_of_other_devices_are_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.empty(3, device="ocl").uniform_(generator=torch.Generator())


def test_a_device_that_does_not_exist_has_no_generator():
    with pytest.raises(RuntimeError):
        torch.Generator(device=f"ocl:{torch.ocl.device_count()}")
