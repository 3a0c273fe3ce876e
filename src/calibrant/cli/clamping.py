"""What ``calibrant clamp`` does once torch may be loaded: read, fit, judge, draw, write."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from matplotlib.figure import Figure

from calibrant.clamping import ClampedModel, load_clamped, save_clamped
from calibrant.cli.clamp_case import ClampCase, ClampRequest
from calibrant.cli.clamp_folder import ClampFolder
from calibrant.cli.device import chosen_device
from calibrant.cli.labelled_inputs import blamed_on
from calibrant.cli.notes import warnings_shown
from calibrant.cli.output import check_folder, standard_error, standard_output
from calibrant.cli.progress import stages
from calibrant.cli.writing import write_json, write_page
from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.diagrams import delta_picture, reliability
from calibrant.errors import CalibrantError
from calibrant.files import save
from calibrant.plots import ThemeName, plot_delta, plot_reliability
from calibrant.report.clamping.document import clamping_to_document
from calibrant.report.clamping.judgement import CLAMPED, ClampingJudgement
from calibrant.report.clamping.judging import judge_clamping, needs_refit
from calibrant.report.clamping.markdown import clamping_to_markdown
from calibrant.report.clamping.terminal import clamping_to_terminal

__all__ = ["run_clamping"]

_SHOWN = 6  # inputs in the picture of δ
_IMAGE_AXES, _LEAST_SIDE = 3, 2  # of what can be drawn


def run_clamping(request: ClampRequest) -> None:
    """Carry the request out. All that can be wrong with it is found before the long work."""
    request.method.method()
    folder = ClampFolder(request.out)
    check_folder(request.out)
    folder.check()
    request.reports.check([request.data, request.test])
    device = chosen_device(request.device)
    out, err = standard_output(), standard_error()
    with warnings_shown(err) as said, stages(err) as stage:
        case = ClampCase.of(request, device, stage)
        with blamed_on(request.data):
            calibration = case.calibration.at_zero()
        with blamed_on(request.test):
            before = case.test.at_zero()
        folder.begin(case.settings())
        try:
            clamped = _clamped(request, case, folder, stage)
        except CalibrantError:
            folder.withdraw()
            raise
        except KeyboardInterrupt:
            err.print("Stopped. The same command goes on from what was found so far.")
            raise
        stage("judging")
        with blamed_on(request.test):
            after = case.test.behind(clamped)
        found = judge_clamping(
            clamped,
            calibration,
            before,
            after,
            calibration_after=case.calibration.behind(clamped) if needs_refit(clamped) else None,
            head=case.method.head,
            n_bins=request.n_bins,
            resamples=request.resamples,
            seed=request.method.seed,
        )
        stage("drawing")
        pictures = request.reports.save_pictures(lambda theme: _drawn(request, case, clamped, found, theme))
        written = [
            folder.clamped,
            *_write(folder, found),
            *pictures,
            *_report(request, folder, found, pictures),
        ]
    out.print(clamping_to_terminal(found, source=_source(request), said=said))
    after_file = folder.path / "after.npz"
    out.print(f"Next: calibrant evaluate {after_file} --compare {folder.path / 'before.npz'}", style="bold")
    out.print("Wrote " + ", ".join(str(path) for path in written), style="dim")


def _clamped(request: ClampRequest, case: ClampCase, folder: ClampFolder, stage: Callable[[str], None]) -> ClampedModel:
    """Fitted, or as an earlier run of this command left it."""
    if folder.clamped.exists():
        standard_error().print(f"{folder.path} holds a finished fit: it is judged again, and nothing is fitted.")
        clamped = load_clamped(folder.clamped, case.network.model)
    else:
        clamped = case.method.fit(
            case.network.model,
            case.calibration.samples,
            folder=folder.path,
            keep_folder=True,  # until the model is saved
            progress=lambda what, passes: stage(f"{what} ({passes:.0f} passes)"),
        )
    if request.with_weights or not folder.clamped.exists():
        save_clamped(clamped, folder.clamped, with_weights=request.with_weights)
    folder.forget_journal()
    return clamped


def _source(request: ClampRequest) -> str:
    return f"{request.data.name} → {request.test.name}"


def _write(folder: ClampFolder, found: ClampingJudgement) -> list[Path]:
    """The test rows as the network, temperature scaling and the clamped network see them."""
    written = []
    for name, file in ((UNCALIBRATED, "before.npz"), (TEMPERATURE, "temperature.npz"), (CLAMPED, "after.npz")):
        if name in found.predictions:
            save(found.predictions[name], folder.path / file)
            written.append(folder.path / file)
    return written


def _report(request: ClampRequest, folder: ClampFolder, found: ClampingJudgement, pictures: list[Path]) -> list[Path]:
    source = _source(request)
    return [
        *write_page(
            request.reports.markdown or folder.path / "report.md",
            pictures,
            lambda figures: clamping_to_markdown(found, source=source, figures=figures),
        ),
        *write_json(
            request.reports.json or folder.path / "report.json",
            lambda: clamping_to_document(
                found, network=request.model, calibration=request.data.name, test=request.test.name
            ),
        ),
    ]


def _drawn(
    request: ClampRequest, case: ClampCase, clamped: ClampedModel, found: ClampingJudgement, theme: ThemeName
) -> dict[str, Figure]:
    """The reliability before and after, and δ, if there is one, where the inputs are images."""
    before, after = (reliability(found.predictions[name], n_bins=request.n_bins) for name in (UNCALIBRATED, CLAMPED))
    ax = plot_reliability(before, other=after, labels=("before", "clamped"), theme=theme)
    drawn = {"before_and_after": cast("Figure", ax.figure)}
    rows = case.test.samples
    shape = rows.input_shape
    if found.moves and len(shape) == _IMAGE_AXES and min(shape[1:]) >= _LEAST_SIDE:
        some = torch.arange(min(_SHOWN, len(rows)))
        inputs, _ = next(rows.batches(some, device=clamped.delta.device, batch_size=_SHOWN))
        captions = tuple(_class_name(case, int(label)) for label in rows.labels[some])
        drawn["delta"] = plot_delta(delta_picture(clamped, inputs, captions=captions), theme=theme)
    return drawn


def _class_name(case: ClampCase, label: int) -> str:
    names = case.network.class_names
    return str(label) if names is None else names[label]
