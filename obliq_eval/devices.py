"""The device that a user names, as torch names it."""

from __future__ import annotations

from obliq_eval.errors import UserError


def device_of(name: str | None) -> str:
    """Return torch's name of the device that is asked for, by default of the best one.

    Args:
        name: `cpu`, `cuda`, the number of a GPU, or whatever torch knows.

    Raises:
        UserError: If there is no such device here, whether the model would use it or not.
    """
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    device = f"cuda:{name}" if name.isdecimal() else name
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # a backend of torch may raise anything
        count = torch.cuda.device_count()
        raise UserError(
            f"there is no device {name!r} here: give cpu, cuda or the number of a GPU (there are {count})"
        ) from error
    return device
