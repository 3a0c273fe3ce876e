"""Whether δ is so large that x + δ is hardly an input any more: nothing else in a fit would say so."""

import torch
from torch import Tensor

from calibrant.inference import CalibrationSamples

__all__ = ["note_of_size"]

# Of the rows, as many as this are looked at, and this share of the numbers in x + δ may leave the range of the inputs.
_MOST_ROWS, _MOST_OUTSIDE = 512, 0.5


def note_of_size(delta: Tensor, rows: CalibrationSamples) -> str | None:
    """Return a note on a δ that is large beside the inputs; usually None.

    Args:
        delta: Of an input's shape.
        rows: Those it was fitted on.
    """
    if not bool(delta.any()):
        return None
    some = torch.arange(0, len(rows), -(-len(rows) // _MOST_ROWS))
    norms, ends, delta = [], [], delta.double().cpu()
    for inputs, _ in rows.batches(some, device="cpu"):
        norms.append(inputs.double().flatten(1).norm(dim=1))
        ends.append(torch.stack(inputs.double().aminmax()))
    typical, own = float(torch.cat(norms).median()), float(delta.norm())
    low, high = float(torch.stack(ends).min()), float(torch.stack(ends).max())
    outside = [
        ((inputs.double() + delta < low) | (inputs.double() + delta > high)).flatten(1).double().mean(dim=1)
        for inputs, _ in rows.batches(some, device="cpu")
    ]
    share = float(torch.cat(outside).mean())
    told = []
    if own > typical:
        told.append(f"‖δ‖ = {own:.3g} is more than the norm of a typical input, {typical:.3g}")
    if share > _MOST_OUTSIDE:
        told.append(f"{share:.0%} of the numbers in x + δ lie outside the inputs' range, {low:.3g} to {high:.3g}")
    if not told:
        return None
    return f"{', and '.join(told)}: the network sees hardly any of its inputs. Give a larger strength."
