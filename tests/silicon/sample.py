"""A sample that a change must pass: 100 programs of four devices, four minutes on two cores.

Each day it takes a device of each group, so that weeks have all of them.
"""

import datetime

#: Devices by what their compilers are, and how many programs of one.
GROUPS = (
    (("gfx1030", "gfx1100", "gfx1201"), 30),
    (("gfx90a", "gfx803", "gfx942", "gfx906"), 25),
    (("arc-b", "arc-a", "gen9", "max-1550", "xe-lp", "lunar-lake"), 25),
    (("mali-g610", "adreno-750", "mali-g52", "videocore", "mali-g720", "asahi"), 20),
)


def devices(day=None):
    """The day's devices, and how many programs of each; of today by default."""
    day = datetime.datetime.now(datetime.UTC).date().toordinal() if day is None else day
    return {names[day % len(names)]: count for names, count in GROUPS}
