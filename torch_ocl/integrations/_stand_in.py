"""Stand-ins for classes written in C or Rust that can't be changed or derived from."""

from collections.abc import Callable
from typing import Any


class _StandIn(type):
    """The class of stand-ins. They are as good as their class wherever classes are compared, looked
    up or asked for instances, and `is` alone tells them apart."""

    _upstream: type
    _make: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return type.__getattribute__(cls, "_make")(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(type.__getattribute__(cls, "_upstream"), name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, type.__getattribute__(cls, "_upstream"))

    def __subclasscheck__(cls, subclass: type) -> bool:
        upstream = type.__getattribute__(cls, "_upstream")
        return subclass is cls or issubclass(subclass, upstream)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is type.__getattribute__(cls, "_upstream")

    def __hash__(cls) -> int:
        return hash(type.__getattribute__(cls, "_upstream"))


def stand_in(upstream: type, make: Callable[..., Any]) -> type:
    """A class of the same name whose objects are those of `upstream`, made by calling `make`.

    It can't be derived from. It pickles by the name of `upstream`, so it has to take its place.
    """
    attributes = {
        "__module__": upstream.__module__,
        "__qualname__": upstream.__qualname__,
        "__doc__": upstream.__doc__,
        "__slots__": (),
        "_upstream": upstream,
        "_make": staticmethod(make),
    }
    return _StandIn(upstream.__name__, (), attributes)
