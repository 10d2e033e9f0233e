"""Whether the device refuses what the CPU refuses."""

import pytest


def raise_the_same(cases):
    """Each case, a function of a device, raises an exception of the same type on both."""
    for number, case in enumerate(cases):
        raised = []
        for device in ("cpu", "ocl"):
            with pytest.raises(Exception) as error:
                case(device)
            raised.append(error.type)
        assert raised[0] is raised[1], f"case {number}"
