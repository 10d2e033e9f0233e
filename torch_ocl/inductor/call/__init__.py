"""How a compiled graph calls its kernels: in Python, in C++, in replays."""
