"""The one list of what the op matrix is known to miss: known_gaps.yaml.

    <OpInfo name>:
      <dtype or "all">: <reason>

An entry that passes fails the run, so the list can't rot.
"""

import pathlib

import yaml

PATH = pathlib.Path(__file__).with_name("known_gaps.yaml")


def load():
    """{op name: {dtype name or "all": reason}}"""
    return yaml.safe_load(PATH.read_text()) or {}


def reason(gaps, name, dtype_name):
    """Why (op, dtype) is a known gap, or None."""
    entry = gaps.get(name, {})
    return entry.get(dtype_name) or entry.get("all")
