"""How processes side by side share the cores."""

import os

import torch


def share(processes):
    """Leaves this process, and those it starts, its part of the cores. To be called before a device
    is used.

    Processes that all use every core wait for each other most of the time, for the threads of CPU
    torch and of Intel's CPU driver spin between tasks (other drivers' threads sleep).
    """
    if processes <= 1:
        return
    part = max(1, torch.get_num_threads() // processes)
    torch.set_num_threads(part)
    for name in ("OMP_NUM_THREADS", "CL_CONFIG_CPU_TBB_NUM_WORKERS"):
        os.environ.setdefault(name, str(part))
