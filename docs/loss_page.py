"""The page of losses, from their docstrings."""

import inspect
import re

from calibrant import catalogue
from calibrant.losses import ChangesWithEpoch, Loss, MetaLoss, NeedsSamples, RowLoss

INTRODUCTION = """\
# Losses: what each one does, and when it misleads

<!-- Written by `make docs` from the docstrings; edit those. -->

Notation: row i has logits z_i, probabilities p_i = softmax z_i, label y_i, predicted class ŷ_i = argmax p_i, confidence
c_i = max p_i, and correctness a_i = 1 if ŷ_i = y_i, else 0. There are n rows in the batch and k classes. Where one row
is meant its number is left out: p_y is the probability of its true class. The *soft accuracy* of a row, which has a
slope where a_i has none, is max(0, 1.5 − Σ_j σ(t (p_j − p_y))), with t = 100: 1 where the true class leads, 1/2 where
it shares the lead.

**Every loss takes the place of `nn.CrossEntropyLoss`**: `loss(logits, labels)`, with logits of shape `(n, k)` or `(n,
k, ...)`. `reduction` is torch's `mean` or `sum`; losses of single rows also have `none`. Rows whose label is
`ignore_index` count for nothing; None, the default, means that every row counts. Half-precision logits are worked in
float32. Some losses also take soft labels, probabilities of shape `(n, k)`; the others refuse them, and all but `crl`
work with [mixup](training.md#mixup) all the same. On the command line options stand in brackets:
`mmce(weight=0.5,base=focal(gamma=1))`.

**Rows and batches.** A loss of single rows is a mean: how the rows are batched does not matter. A penalty on the batch
as a whole is an estimate from n rows, with the noise and the bias of one: change the batch size and it is another loss.
In a run of several processes `calibrant train` gives it the rows of all of them.

**Which to take?** Start with `ce` and a temperature fitted on held-out rows; everything else must beat that. Losses
that hold confidence back (`label_smoothing`, `focal`, `entropy`, `logit_norm`, `mbls`) lower the calibration error of
the raw network. Then look at two more numbers. The error *after* a temperature: on CIFAR-10 label smoothing lowered the
raw error from 6.4 to 2.7 %, but with a temperature cross-entropy came to 0.95 % and label smoothing to 2.5 % (Wang,
Feng & Zhang, 2021). And `auroc`, how well confidence tells right from wrong: with label smoothing it fell from .94 to
.73 (Singh et al., 2021, ResNet-50 on CIFAR-10). `calibrant train` prints all of these side by side. Penalties that
estimate a calibration error (`mmce`, `dece`, `sece`, `sb_ece`, `dca`) see the training rows: once those are learnt by
heart, right answers with full confidence are calibrated, and there is nothing left to say. `crl`, `avuc` and
`soft_avuc` are about the order of confidences rather than their level.
"""

FAMILIES = {
    "Losses of single rows": "Each row has its loss by itself; a batch's is their mean.",
    "Losses of a batch as a whole": (
        "The loss is that of the rows (`base`, the cross-entropy if not given) plus `weight` times a penalty on the "
        "batch; the formula is the penalty's. 0 as `weight` leaves the base loss."
    ),
    "Losses that are learned": (
        "These have parameters of their own, tuned on held-out rows while the network trains: the last layer's next "
        "step is looked ahead to, held-out rows judge the layer that would come out, and the parameters go down the "
        "slope of that judgement. They look at features, so they do not take the place of `nn.CrossEntropyLoss`: "
        "`calibrant train --split 8:1:1` trains with them, and `MetaRegulariser` does in "
        "[a loop of your own](training.md#a-loss-that-is-learned)."
    ),
}

# The same for all, and told in the introduction.
SHARED = {"reduction", "ignore_index"}


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
    text = _without_roles(inspect.cleandoc(loss.__doc__ or ""))
    body, *sections = re.split(r"^(Args|Raises|Example):\n", text, flags=re.MULTILINE)
    arguments = dict(zip(sections[::2], sections[1::2], strict=True)).get("Args", "")
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
        *_options(loss, arguments),
    ]
    return "\n".join(lines)


def _about_calling(loss: Loss) -> list[str]:
    return [f"- **Soft labels**: {'yes' if loss.takes_soft_labels else 'no'}", *_hooks(loss)]


def _hooks(loss: Loss) -> list[str]:
    """What a loop of one's own must call."""
    calls = [("`remember` once, `look_at` before each batch", NeedsSamples), ("`begin_epoch`", ChangesWithEpoch)]
    told = [call for call, hook in calls if isinstance(loss, hook)]
    return [f"- **Asks of the loop**: {', '.join(told)} ([how](training.md#losses-that-ask-for-more))"] if told else []


def _options(loss: Loss | MetaLoss, arguments: str) -> list[str]:
    """A table of the loss's own options, their defaults and what the docstring says of them."""
    entries = re.split(r"^    (\w+): ", arguments, flags=re.MULTILINE)[1:]
    meaning = {name: " ".join(value.split()) for name, value in zip(entries[::2], entries[1::2], strict=True)}
    options = [each for name, each in inspect.signature(type(loss)).parameters.items() if name not in SHARED]
    if not options:
        return []
    lines = ["| option | default | |", "|---|---|---|"]
    for option in options:
        words = meaning.get(option.name, "").replace("|", r"\|")  # a bar would end the cell
        lines.append(f"| `{option.name}` | `{option.default!r}` | {words} |")
    return [*lines, ""]


def _without_roles(text: str) -> str:
    """Names as Markdown writes them."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text).replace("``", "`")
