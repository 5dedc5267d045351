"""Agents of torchrun that meet in a shared directory: ``torchrun --rdzv-backend=fsgather --rdzv-endpoint=/shared/dir --rdzv-id=job``.

====================== ===============================================================================================
:mod:`directory`       what lies in the directory: versions of a state, of which each follows the one before; values
:mod:`state`           the state that torch keeps there, by the clock of the file server
:mod:`handler`         what torch asks: the next rendezvous, who waits, the end
====================== ===============================================================================================

torch itself decides who takes part, in which round, and who is gone (``DynamicRendezvousHandler``); the directory takes the place of a store
on a host that all others know by name. Ranks then talk to a store of torch on the first agent's host, at an address that all agents reach.
"""
