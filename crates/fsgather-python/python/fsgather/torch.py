"""fsgather as a part of ``torch.distributed``, for programs that choose by their configuration.

The backend ``fsgather`` is torch's own gloo, with the object functions (``all_gather_object``, ``gather_object``,
``broadcast_object_list``) of its groups going through fsgather. Collectives of tensors stay where they are:

    torch.distributed.init_process_group("cpu:fsgather,cuda:nccl")

``init_method="fsgather:///shared/directory"`` has ranks meet through a directory, without an address or a port that
somebody would have to know beforehand:

    fsgather.torch.register()
    torch.distributed.init_process_group("gloo", init_method="fsgather:///shared/directory", rank=3, world_size=8)

Without ``rank`` and ``world_size`` they are what the launcher says. Later versions of torch find the backend by
themselves; before 2.14, and for ``init_method``, call :func:`register` first, or set ``FSGATHER_PATCH``.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Makes the backend ``fsgather`` and ``init_method="fsgather://..."`` known to torch. Doing so twice changes nothing.

    Raises:
        RuntimeError: this torch is built without ``torch.distributed``, or without gloo.
    """
    from fsgather._switch import backend, rendezvous

    backend.register()
    rendezvous.register()
