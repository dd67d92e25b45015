"""Weights that are spread over devices (FSDP): what can be trained of them, brought together, and spread again.

`torch.distributed.checkpoint` knows both kinds of FSDP. The base's weights, which rest, are never brought together.
Every function is called in all processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights that can be trained, whole and on the CPU; empty in every process but the first."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    found: dict[str, Any] = get_model_state_dict(model, options=options)
    return found


def set_weights(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Put whole weights into a model; those that are not named stay as they are."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    set_model_state_dict(model, dict(state), options=StateDictOptions(full_state_dict=True, strict=False))


def optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return an optimiser's state, whole and on the CPU; empty in every process but the first."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    found: dict[str, Any] = get_optimizer_state_dict(model, optimizer, options=options)
    return found


def set_optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Put a whole state into an optimiser."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    set_optimizer_state_dict(model, optimizer, dict(state), options=StateDictOptions(full_state_dict=True))
