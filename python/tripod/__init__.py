"""Python client of compiled models: `Model` wraps the C API of a model.so (include/tripod/model.h)."""
from .capi import Model, TripodError

__all__ = ["Model", "TripodError"]
