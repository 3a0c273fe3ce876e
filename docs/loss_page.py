"""The page of losses, from their docstrings."""

import inspect
import re

from calibrant import catalogue
from calibrant.losses import ChangesWithEpoch, Loss, MetaLoss, NeedsSamples, RowLoss, default_settings

INTRODUCTION = """\
# Losses: what each one does, and when it misleads

<!-- Written by `make docs` from the docstrings; edit those. -->

Notation: sample i has logits z_i, probabilities p_i = softmax z_i, label y_i, predicted class ŷ_i = argmax p_i,
confidence c_i = max p_i, and correctness a_i = 1 if ŷ_i = y_i, else 0. There are n samples in the batch and k classes.
Where a single sample is meant its index is left out: p_y is the probability of its true class. The *soft accuracy* of a
sample, which has a slope where a_i has none, is max(0, 1.5 − Σ_j σ(t (p_j − p_y))), with t = 100: 1 where the true
class leads, 1/2 where it shares the lead.

**Every loss replaces `nn.CrossEntropyLoss`**: `loss(logits, labels)`, with logits of shape `(n, k)` or `(n, k, ...)`.
All have two options that the tables below leave out: `reduction`, torch's `mean` or `sum`, for losses of single samples
also `none`; and `ignore_index`, the label of samples that are left out (None, the default, keeps all). Losses of single
samples also have `class_weights`, a weight for each class as in torch's cross-entropy: `focal(class_weights=[1,5])`, or
`mmce(base=ce(class_weights=[1,5]))` where a penalty stands around one. Half-precision logits are computed in float32.
Some losses also take soft labels, probabilities of shape `(n, k)`; the others refuse
them, and all but `crl` work with [mixup](training.md#mixup) all the same. On the command line options are given in
brackets: `mmce(weight=0.5,base=focal(gamma=1))`.

**Samples and batches.** A loss of single samples is a mean: how the samples are batched does not matter. A penalty on
the batch as a whole is an estimate from n samples, with its noise and bias: with another batch size it is another loss.
In a run of several processes `calibrant train` computes it on the samples of all of them.

**Which one to choose?** Start with `ce` and a temperature fitted on held-out samples; everything else must beat that.
Losses that hold confidence back (`label_smoothing`, `focal`, `entropy`, `logit_norm`, `mbls`) lower the calibration
error of the uncalibrated network. Then look at two more numbers. The error *after* a temperature: on CIFAR-10 label
smoothing lowered the uncalibrated error from 6.4 to 2.7 %, but with a temperature cross-entropy came to 0.95 % and
label smoothing to 2.5 % (Wang, Feng & Zhang, 2021). And `auroc`, how well confidence separates correct from incorrect
predictions: with label smoothing it fell from .94 to .73 (Singh et al., 2021, ResNet-50 on CIFAR-10). `calibrant train`
prints all of these side by side. Penalties that estimate a calibration error (`mmce`, `dece`, `sece`, `sb_ece`, `dca`)
see the training samples: once those are memorised, correct predictions with full confidence are calibrated, and the
penalty vanishes. `crl`, `avuc` and `soft_avuc` are about the order of confidences rather than their level.
"""

FAMILIES = {
    "Losses of single samples": "Each sample has a loss by itself; the loss of a batch is their mean.",
    "Losses of a batch as a whole": (
        "The loss is that of the samples (option `base`, the cross-entropy by default) plus `weight` times a penalty "
        "on the batch; the formula is the penalty's. 0 as `weight` leaves the base loss."
    ),
    "Meta-learned losses": (
        "These have parameters of their own, tuned on held-out samples while the network trains: the last layer takes "
        "a trial step, the objective is computed on held-out samples with the resulting layer, and the parameters "
        "follow the gradient of that objective. They need features, so they do not replace `nn.CrossEntropyLoss`: "
        "`calibrant train --split 8:1:1` trains with them, and `MetaRegulariser` does in "
        "[a loop of your own](training.md#a-meta-learned-loss)."
    ),
}

# The same for all losses of a family, and described in the introduction.
SHARED = {"base", "reduction", "ignore_index", "class_weights"}


def loss_page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    of_rows = [loss for loss in catalogue.losses.values() if isinstance(loss, RowLoss)]
    of_batches = [loss for loss in catalogue.losses.values() if not isinstance(loss, RowLoss)]
    learned = list(catalogue.meta_losses.values())
    for (heading, words), losses in zip(FAMILIES.items(), (of_rows, of_batches, learned), strict=True):
        parts.append(f"## {heading}\n\n{words}\n")
        parts += [entry(loss) for loss in losses]
    return "\n".join(parts)


def entry(loss: Loss | MetaLoss) -> str:
    """One loss, from its docstring."""
    body, _ = _parts(type(loss))
    prose, formula = re.split(r"^Formula: ", body, flags=re.MULTILINE)
    paper, where = loss.paper, f", {loss.paper.where}" if loss.paper.where else ""
    lines = [f"### `{loss.name}`: {loss.title}", ""]
    for paragraph in prose.strip().split("\n\n"):
        lines += [" ".join(paragraph.split()), ""]
    lines += [
        f"- **Formula**: `{' '.join(formula.replace('`', '').split())}`",
        *([] if isinstance(loss, MetaLoss) else _about_calling(loss)),
        f"- **From**: {paper.short}, {paper.link}{where}",
        f"- **Use**: `from calibrant.losses import {type(loss).__name__}`, or `calibrant train --loss {loss.name}`",
        "",
        *_options(loss),
    ]
    return "\n".join(lines)


def _about_calling(loss: Loss) -> list[str]:
    return [f"- **Soft labels**: {'yes' if loss.takes_soft_labels else 'no'}", *_hooks(loss)]


def _hooks(loss: Loss) -> list[str]:
    """What a loop of one's own must call."""
    calls = [("`remember` once, `look_at` before each batch", NeedsSamples), ("`begin_epoch`", ChangesWithEpoch)]
    needed = [call for call, hook in calls if isinstance(loss, hook)]
    return (
        [f"- **Training loop**: must call {', '.join(needed)} ([how](training.md#losses-with-hooks))"] if needed else []
    )


def _options(loss: Loss | MetaLoss) -> list[str]:
    """A table of the loss's own options, their defaults, and their docs, its own or those of its base class."""
    kind = type(loss)
    meaning = _parts(kind.__mro__[1])[1] | _parts(kind)[1]
    options = {name: value for name, value in default_settings(kind).items() if name not in SHARED | {"loss"}}
    if not options:
        return []
    lines = ["| option | default | |", "|---|---|---|"]
    for name, default in options.items():
        words = meaning[name].replace("|", r"\|")  # a bar would end the cell
        lines.append(f"| `{name}` | `{default!r}` | {words} |")
    return [*lines, ""]


def _parts(kind: type) -> tuple[str, dict[str, str]]:
    """The prose of a docstring, with its formula, and its arguments by name."""
    text = _without_roles(inspect.cleandoc(kind.__doc__ or ""))
    body, *sections = re.split(r"^(Args|Raises|Example):\n", text, flags=re.MULTILINE)
    arguments = dict(zip(sections[::2], sections[1::2], strict=True)).get("Args", "")
    entries = re.split(r"^    (\w+): ", arguments, flags=re.MULTILINE)[1:]
    return body, {name: " ".join(value.split()) for name, value in zip(entries[::2], entries[1::2], strict=True)}


def _without_roles(text: str) -> str:
    """Names as Markdown writes them."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text).replace("``", "`")
