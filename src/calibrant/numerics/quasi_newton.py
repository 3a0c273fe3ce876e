"""The minimum of a smooth function of many numbers, with a certificate: limited-memory quasi-Newton steps."""

from collections.abc import Callable
from typing import Any

import torch
from scipy.optimize import minimize
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.certificate import Certificate

__all__ = ["quasi_newton"]

# Where steps gain less than this, relative to the function, rounding takes over.
_NO_GAIN = 1e-15
# A gradient this many times the one asked for is still taken for an optimum, where steps gain nothing any more.
_SLACK = 100.0


def quasi_newton(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    *,
    least: float | None = None,
    tolerance: float = 1e-7,
    max_steps: int = 1000,
) -> tuple[Tensor, Certificate]:
    """Minimise by L-BFGS-B. The minimum is global where the function is convex, and the nearest one elsewhere.

    Args:
        function: Gives its value, a single number, and its gradient, (p,), both float64, on the device it is asked on.
            One call is one pass over the rows.
        start: Shape (p,), float64.
        least: A bound from below on every number, or None.
        tolerance: Of the largest entry of the gradient; of those that the bound stops only where they point inwards.
        max_steps: Steps allowed.

    Raises:
        FitError: If the gradient is still large after ``max_steps``, or the function is not finite.

    Example:
        >>> bowl = lambda x: ((x - 3).square().sum(), 2 * (x - 3))
        >>> point, certificate = quasi_newton(bowl, torch.zeros(2, dtype=torch.float64))
        >>> point.round(decimals=6).tolist(), certificate.gradient < 1e-6
        ([3.0, 3.0], True)
    """

    def asked(point: Any) -> tuple[float, Any]:
        value, gradient = function(torch.from_numpy(point).to(start))
        return float(value), gradient.cpu().numpy()

    found = minimize(
        asked,
        start.cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=None if least is None else [(least, None)] * len(start),
        options={"maxiter": max_steps, "maxfun": 10 * max_steps, "maxcor": 20, "gtol": tolerance, "ftol": _NO_GAIN},
    )
    point, gradient = torch.from_numpy(found.x).to(start), torch.from_numpy(found.jac).to(start)
    if least is not None:
        gradient = torch.where(point > least, gradient, gradient.clamp(max=0))
    steepest = float(gradient.abs().max())
    if not steepest <= _SLACK * tolerance:  # also where it is not a number
        raise FitError(
            f"the optimum must have a gradient of at most {_SLACK * tolerance:.0e}; got {steepest:.1e} after "
            f"{found.nit} steps ({found.message}). Regularise more, or look for extreme logits."
        )
    return point, Certificate(float(found.fun), steepest, int(found.nit), float(found.nfev))
