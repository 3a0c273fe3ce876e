"""Neural Clamping: a frozen network calibrated by one δ added to every input and a map applied to its logits."""

from calibrant.clamping.evaluation import *  # noqa: F403
from calibrant.clamping.fitting import *  # noqa: F403
from calibrant.clamping.inputs import *  # noqa: F403
from calibrant.clamping.model import *  # noqa: F403
from calibrant.clamping.neural_clamping import *  # noqa: F403
from calibrant.clamping.objective import *  # noqa: F403
from calibrant.clamping.solver import *  # noqa: F403
from calibrant.clamping.start import *  # noqa: F403
