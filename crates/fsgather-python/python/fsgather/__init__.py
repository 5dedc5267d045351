"""Gathers results of many processes through a shared directory."""

from fsgather._fsgather import __version__

__all__ = ["__version__"]
