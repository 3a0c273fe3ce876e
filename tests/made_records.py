"""Records with numbers made up by a rule, so that the pages of them are the same on every machine."""

import math
import re
from dataclasses import replace

import torch

from calibrant import catalogue
from calibrant.clamping import (
    ClampedModel,
    ClampingEvaluation,
    ClampingOutcome,
    ClampingSummary,
    NetworkPredictions,
    StrengthTrial,
    evaluate_clamping,
)
from calibrant.comparison import Comparison, MethodResult
from calibrant.diagnosis import (
    Band,
    Calibratability,
    CandidateSummary,
    CandidateVerdict,
    CoefficientCurve,
    CoefficientPoint,
    DensityCurves,
    Diagnosis,
    Direction,
    EpochCurves,
    LearnedEpochs,
    LearnedGroup,
    Refinement,
    RefinementRow,
    ShiftPanel,
    ShiftRow,
    ShiftSummary,
    SizePoint,
    SplitSpread,
    TwoSample,
    ValidationSize,
    spread,
)
from calibrant.diagnosis.shift import shift_levels
from calibrant.diagnosis.summaries import SEPARATION
from calibrant.evaluation import ClassShare, Evaluation, WorstBin, WorstClass
from calibrant.evidence import CalibrationLine, CorpSplit, Difference, Estimate, NetBenefit, Risk
from calibrant.evidence.risk import RiskCurve, RiskGroup
from calibrant.maps import Scale
from calibrant.metrics import Murphy, RefinementTerms, ScoreSplit
from calibrant.metrics.states import TopStatistic
from calibrant.predictions import ZeroCells

HOSTILE = "<script>alert(1)</script>|\x1b[2J\n# `a` *b* [x](http://y)"


def reviewed(cases, verdict):
    """The verdict on every case as text, without numbers, whose last digits differ between machines.

    The side of a difference that is noise is left out too.
    """
    parts = []
    for name, record in cases.items():
        words = verdict(record)
        lines = [words.headline, *(f"- {line}" for line in words.findings), *(f"→ {step}" for step in words.next_steps)]
        text = re.sub(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?", "#", "\n".join(lines))
        parts.append(f"{name}\n\n" + re.sub("(?:lower|higher), noise", "lower or higher, noise", text) + "\n")
    return "\n\n".join(parts)


def made_estimate(value, *, calibration=False, p=0.2):
    width = 0.1 * abs(value) + 0.001
    return Estimate(value, value - width, value + width, value / 4 if calibration else None, p if calibration else None)


def made_evaluation(*, top_label=False, miscalibrated=True, names=("cat", "dog", None), zeros=True):
    """Overconfident by 13 points on 2,000 samples of 5 classes; or calibrated, on 171."""
    values = {"accuracy": 0.688, "confidence": 0.818 if miscalibrated else 0.691, "nll": 0.8135, "auroc": 0.7421}
    metrics = {}
    for place, (name, metric) in enumerate(catalogue.metrics.items()):
        if name == "sece_printed" or (top_label and not isinstance(metric.statistic, TopStatistic)):
            continue
        is_error = metric.family == "calibration"
        value = values.get(name, (0.13 if miscalibrated else 0.03) if is_error else 0.1 + 0.01 * place)
        metrics[name] = made_estimate(value, calibration=is_error, p=0.0005 if miscalibrated else 0.37)
    metrics["oe"] = Estimate(0.000134, 0.0, 0.0006, 0.0139, 1.0)
    metrics["mce"] = Estimate(0.5, math.nan, math.nan, 0.2, math.nan)
    gain = 0.11 if miscalibrated else 0.02
    splits = {"nll": ScoreSplit(0.8135, gain, gain - 0.03, gain + 0.03, 0.8135 - gain)}
    splits["brier"] = ScoreSplit(0.4201, gain / 2, gain / 2 - 0.03, gain / 2 + 0.03, 0.4201 - gain / 2)
    return Evaluation(
        n=2000 if miscalibrated else 171,
        classes=None if top_label else 5,
        n_bins=15,
        seed=0,
        metrics=metrics,
        murphy=Murphy(reliability=0.02, resolution=0.03, uncertainty=0.2147, within_bin=-0.0047),
        refinement_terms=RefinementTerms(
            alpha=0.5, beta=0.2, gamma=0.1, ece=0.13, confidence_minus_accuracy=0.13, overconfident_bins=0.8
        ),
        corp={
            "top_brier": CorpSplit(0.2, 0.0213, 0.036, 0.2147, floor=0.0041, p=0.005 if miscalibrated else 0.4),
            "top_nll": CorpSplit(0.6, 0.0812, 0.101, 0.6198, floor=0.0123, p=0.005 if miscalibrated else 0.4),
        },
        splits={} if top_label else splits,
        worst_bins=[WorstBin(0.9333, 1.0, 0.314, 0.981, 0.842)] if miscalibrated else [],
        worst_classes=[
            WorstClass(label, name, 400 - 150 * label, 0.4 - 0.15 * label, 0.82 + 0.01 * label, 0.65)
            for label, name in enumerate(names)
        ]
        if miscalibrated and not top_label
        else [],
        zeros=ZeroCells(cells=270, of_cells=10_000, labels=3, floored_labels=3, smallest=1e-8)
        if zeros and not top_label
        else None,
    )


def made_two_classes():
    """A fraud model whose probabilities are twice too high on average, with two thresholds."""

    def near(value, half, **more):
        return Estimate(value, value - half, value + half, **more)

    tenths = tuple(
        RiskGroup(place / 20, (place + 1) / 20 - 0.001, 0.1, (place + 0.5) / 20, near((place + 0.5) / 40, 0.01))
        for place in range(10)
    )
    nodes = tuple(place / 20 for place in range(1, 10))
    curve = RiskCurve(nodes, *(tuple(node / 2 + by for node in nodes) for by in (0.0, -0.01, 0.01)))
    numbers = {"predicted": near(0.25, 0.004), "observed": near(0.125, 0.007), "difference": near(0.125, 0.006)}
    numbers |= {"ratio": near(0.5, 0.03), "auroc": near(0.781, 0.012)}
    errors = {"ece": near(0.125, 0.006, floor=0.011, p=0.0005), "smece": near(0.121, 0.006, floor=0.012, p=0.0005)}
    decisions = tuple(
        NetBenefit(
            at, near(value, 0.008), near(of_all, 0.007), near(value - of_all, 0.009),
            near(0.6 - at, 0.01), near(0.9 - at, 0.02), near(0.2 + at, 0.01),
        )
        for at, value, of_all in ((0.05, 0.081, 0.0789), (0.1, 0.061, 0.0278))
    )  # fmt: skip
    made = made_evaluation(names=("fine", "fraud"), zeros=False)
    return replace(
        made,
        metrics=made.metrics | errors,
        corp={name.replace("top", "risk"): split for name, split in made.corp.items()},
        classes=2,
        positive="fraud",
        majority=ClassShare(0, "fine", 0.875),
        line=CalibrationLine(near(0.96, 0.05), near(-1.02, 0.08), near(-0.98, 0.07)),
        risk=Risk(**numbers, **errors, tenths=tenths, curve=curve),
        decisions=decisions,
    )


def made_differences():
    """Of this model to a baseline."""
    return {
        "nll": Difference(0.9012, 0.8135, -0.0877, -0.1021, -0.0733, 0.0005, 0.0005, "better"),
        "ece": Difference(0.1298, 0.1301, 0.0003, -0.0121, 0.0127, 0.91, 0.91),
        "sce": Difference(0.0712, 0.0498, -0.0214, -0.0301, -0.0127, 0.0005, 0.0005, "better"),
        "aurc": Difference(0.1302, 0.1511, 0.0209, 0.0113, 0.0305, 0.0005, 0.0005, "worse"),
        "entropy": Difference(0.5102, 0.6211, 0.1109, 0.1013, 0.1205, 0.0005, 0.0005),
    }


def made_difference(value, baseline=1.0):
    """Clear where it is a hundredth or more; lower is better."""
    side = "alike" if abs(value) < 0.01 else "better" if value < 0 else "worse"
    p = 0.3 if side == "alike" else 0.0005
    return Difference(baseline, baseline + value, value, value - 0.005, value + 0.005, p, min(1.0, 3 * p), side)


def made_method(name, nll, baselines, **changed):
    """A method whose metrics all follow from its log-loss, compared with the given log-losses by baseline."""
    ece = abs(nll - 0.7) / 3 + 0.01
    values = {"nll": nll, "brier": nll / 2, "ece": ece, "ace": ece, "sce": ece / 9, "auroc": 0.8, "aurc": 0.1}
    values["accuracy"] = 0.69
    metrics = {
        metric: made_estimate(value, calibration=metric in {"ece", "ace", "sce"}) for metric, value in values.items()
    }
    differences = {}
    for baseline, other in baselines.items():
        if baseline != name:
            moved = {metric: (nll - other) / (1 if metric == "nll" else 2) for metric in values}
            moved |= {"auroc": 0.0, "accuracy": 0.0}
            differences[baseline] = {
                metric: made_difference(value, values[metric] - value) for metric, value in moved.items()
            }
    return MethodResult(name, name.capitalize(), metrics=metrics, differences=differences, changed=0.0, **changed)


def made_comparison(*, helps=True, cautions=()):
    """Six methods, one of a long name and one that failed; or two of which neither helps."""
    losses = (
        {"uncalibrated": 0.8135, "temperature": 0.7028} if helps else {"uncalibrated": 0.7028, "temperature": 0.7031}
    )
    if helps:
        losses |= {"sms": 0.6812, "temperature(criterion=ece)+isotonic": 0.7011, "histogram": 0.9001}
    baselines = {name: losses[name] for name in ("uncalibrated", "temperature")}
    best = min(losses.values())
    methods = [
        made_method(
            name,
            nll,
            baselines,
            seconds=0.01 * place,
            notes=("3 samples were floored",) if name in {"sms", "histogram"} else (),
            to_best=None if nll == best else made_difference(nll - best),
        )
        for place, (name, nll) in enumerate(sorted(losses.items(), key=lambda pair: pair[1]))
    ]
    if helps:
        methods.append(MethodResult("vector", "Vector scaling", failure="the samples are separable."))
    return Comparison(
        tuple(methods), n_calibration=500, n_test=1000, n_classes=3, n_bins=15, seed=0, resamples=500, cautions=cautions
    )


def small_clamping(shape, *, delta=0.3, n=400, k=5):
    """A linear network on inputs of this shape with a δ of both signs and T = 2: evaluation, network, test samples."""
    generator = torch.Generator().manual_seed(0)
    size = math.prod(shape)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(size, k)).eval()
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(k, size, generator=generator) * 3 / size**0.5)
        model[1].bias.zero_()
    inputs = torch.rand(2 * n, *shape, generator=generator)
    labels = (0.4 * model(inputs).detach()).softmax(1).multinomial(1, generator=generator)[:, 0]
    trials = (StrengthTrial(1.0, -0.01, 0.004, 0.3), StrengthTrial(0.1, -0.02, 0.005, 0.6)) if delta else ()
    summary = ClampingSummary({"strength": "path"}, n, 1.0, None, 0.1, 0.0, trials, head_is_optimal=True)
    moved = delta * torch.linspace(-1, 0.7, size).reshape(shape)
    head = Scale(torch.tensor(2.0, dtype=torch.float64), n_classes=k)
    clamped = ClampedModel(model, moved, head, summary=summary)
    calibration, test = (NetworkPredictions(model, (inputs[part], labels[part])) for part in (slice(n), slice(n, None)))
    found = evaluate_clamping(
        clamped, calibration.at_zero(), test.at_zero(), test.predictions_of(clamped), resamples=100
    )
    return found, clamped, test


def made_clamping(*, helps=True):
    """A δ that lowers the log-loss behind a head of its own, with its parts and strengths; or δ = 0."""
    losses = {"uncalibrated": 0.8135, "temperature": 0.7028}
    names = ("accuracy", "nll", "ece", "ace", "brier", "auroc")

    def method(name, nll, baselines, **more):
        made = made_method(name, nll, baselines, **more)
        metrics = {metric: made.metrics[metric] for metric in names}
        differences = {
            baseline: {metric: found[metric] for metric in names} for baseline, found in made.differences.items()
        }
        return replace(made, metrics=metrics, differences=differences)

    methods = [method(name, nll, {"uncalibrated": losses["uncalibrated"]}, seconds=0.1) for name, nll in losses.items()]
    after = 0.6402 if helps else 0.7028
    clamped = method("clamped", after, losses if helps else {"uncalibrated": losses["uncalibrated"]}, seconds=12.0)
    parts = (method("T* only", 0.7303, {"temperature": 0.7028}),) if helps else ()
    trials = (StrengthTrial(1.0, -0.0123, 0.002, 0.4), StrengthTrial(0.1, -0.0311, 0.004, 1.2))
    summary = ClampingSummary(
        {"strength": "path"},
        500,
        12.0,
        None,
        0.1 if helps else math.inf,
        0.0,
        trials,
        ("T is at a bound",),
        outcome=ClampingOutcome.helps if helps else ClampingOutcome.no_help,
        outcome_note="δ helps: it was chosen" if helps else "δ does not help here: it was not chosen",
    )
    return ClampingEvaluation(
        (*methods, clamped),
        parts,
        "clamped" if helps else None,
        "temperature" if helps else None,
        summary,
        head="temperature",
        temperature=1.5,
        norm=1.2 if helps else 0.0,
        largest=0.3 if helps else 0.0,
        n_calibration=500,
        n_test=1000,
        n_classes=3,
        n_bins=15,
        seed=0,
        resamples=500,
    )


def made_diagnosis(*, seeds=(0, 1), alone=False):
    """A baseline, and a loss that is better calibrated before a temperature and worse after it; or the first alone."""
    maps = ("uncalibrated", "temperature")

    def over(mean):
        return spread([mean + 0.002 * place for place in range(len(seeds))])

    def change(value, baseline, *, side):
        found = made_difference(value, baseline)
        return replace(found, side=side, covers_seeds=len(seeds) > 1)

    test = TwoSample(0.02, 3.1, 2.0, 0.041, "higher", None)
    errors = {"ce": (0.094, 0.011), "label_smoothing(0.1)": (0.021, 0.028)}
    differences = {
        "uncalibrated": change(-0.073, 0.094, side="better"),
        "temperature": change(0.017, 0.011, side="worse"),
    }
    auroc = change(-0.06, 0.87, side="worse")

    def row(mapping, is_baseline):
        density = DensityCurves((0.5,), (1.0,), (1.0,), over(0.9), over(0.6))
        metrics = {metric: over(0.5 + 0.03 * place) for place, metric in enumerate(SEPARATION)}
        terms = ("alpha", "beta", "gamma", "equation_9", "ece", "confidence_minus_accuracy", "overconfident_bins")
        parts = ("reliability", "resolution", "uncertainty", "within_bin", "refinement")
        return RefinementRow(
            mapping,
            metrics,
            {} if is_baseline or len(seeds) == 1 else {"auroc": replace(test, side="lower")},
            None if is_baseline else auroc,
            dict.fromkeys(parts, over(0.1)),
            dict.fromkeys(terms, over(0.2)),
            (False,) * len(seeds),
            density,
        )

    calibratability, refinement, directions = [], [], []
    for name, values in errors.items():
        is_baseline = name == "ce"
        calibratability.append(
            Calibratability(
                candidate=name,
                seeds=seeds,
                accuracy=over(0.75),
                ece=dict(zip(maps, map(over, values), strict=True)),
                temperature=over(1.5),
                optimal_ece=over(0.009),
                oracle_temperature=over(1.6),
                t_tests={} if is_baseline else dict.fromkeys((*maps, "oracle"), test),
                differences={} if is_baseline else differences,
                failures={},
                notes=() if is_baseline else ("temperature: it is at a bound",),
            )
        )
        split = SplitSpread(over(0.8), over(0.1), over(0.7))
        rows = tuple(row(mapping, is_baseline) for mapping in maps)
        refinement.append(Refinement(name, rows, {"nll": split, "brier": split}))
        directions += [
            Direction(name, mapping, over(value), value - 0.01, value + 0.01, "overconfident", True)
            for mapping, value in zip(maps, values, strict=True)
        ]
    band = Band((0.03, 0.02, 0.025), (0.02, 0.01, 0.015), (0.04, 0.03, 0.035))
    sizes = tuple(
        SizePoint(n, {mapping: over(0.05) for mapping in maps[1:]}, dict.fromkeys(maps[1:], 0)) for n in (100, 1000)
    )
    made = Diagnosis(
        candidates=tuple(
            CandidateSummary(name, words, seeds, tuple(f"runs/{name}-{seed}" for seed in seeds), 1000)
            for name, words in (("ce", "cross-entropy"), ("label_smoothing(0.1)", "label smoothing 0.1"))
        ),
        baseline="ce",
        maps=maps,
        n=2000,
        n_classes=10,
        n_bins=15,
        resamples=500,
        seed=0,
        verdicts=(
            CandidateVerdict(
                "label_smoothing(0.1)",
                "ce",
                differences["uncalibrated"],
                differences["temperature"],
                auroc,
                change(0.0, 0.75, side="alike"),
                "worse",
                len(seeds),
                len(seeds),
                1,
            ),
        ),
        calibratability=tuple(calibratability),
        refinement=tuple(refinement),
        directions=tuple(directions),
        coefficients=(),
        validation_sizes=tuple(ValidationSize(name, 3, over(0.09), sizes) for name in errors),
        epochs=(EpochCurves("ce", "test", len(seeds), (1, 2, 3), {"optimal_ece": band}, 2, 0.005),),
        learned_epochs=(),
        map_settings={"temperature": {"criterion": "nll"}},
    )
    if not alone:
        return made
    return replace(
        made,
        candidates=made.candidates[:1],
        verdicts=(),
        calibratability=made.calibratability[:1],
        refinement=made.refinement[:1],
        directions=made.directions[: len(maps)],
        validation_sizes=(),
    )


def made_shift(diagnosis):
    """Two corruptions at two severities and one file, for the baseline and another; one map could not be fitted."""
    metrics = ("ece", "accuracy", "auroc", "nll", "brier", "gap")
    corrupted = [(shift, "corruption", severity) for shift in ("fog", "frost") for severity in (1, 5)]
    sets = [("clean", "clean", None), *corrupted, ("v2", "file", None)]
    names = [one.name for one in diagnosis.candidates[:2]]
    rows = []
    for place, (shift, source, severity) in enumerate(sets):
        for candidate in names:
            for mapping in diagnosis.maps:
                values = [0.1 * place + 0.1 * (candidate != diagnosis.baseline), 0.1 * place + 0.11]
                numbers = dict.fromkeys(metrics, spread([math.nan] * 2 if mapping == "svs" else values))
                better = replace(made_difference(-0.1), side="better", covers_seeds=True)
                rows.append(
                    ShiftRow(
                        candidate=candidate, map=mapping, shift=shift, source=source, severity=severity, n=50,
                        metrics=numbers, change=numbers,
                        direction=replace(diagnosis.directions[0], gap=numbers["gap"]),
                        differences={"ece": better} if source == "file" and candidate != diagnosis.baseline else {},
                        by_seed={},
                    )
                )  # fmt: skip
    keys = dict.fromkeys((row.shift, row.source, row.severity) for row in rows)
    summaries = tuple(ShiftSummary(*key, 50) for key in keys)
    return ShiftPanel(
        diagnosis.baseline, diagnosis.maps, summaries, tuple(rows), shift_levels(rows, diagnosis.baseline)
    )


def made_large_diagnosis():
    """Three candidates, the baseline last, with a map that failed, every kind of curve, and shifted sets."""
    small = made_diagnosis()
    name, third = small.candidates[1].name, "meta_focal"

    def with_third(records):
        ordered = sorted(records, key=lambda one: getattr(one, "candidate", None) or one.name, reverse=True)
        copies = [
            replace(one, **({"candidate": third} if hasattr(one, "candidate") else {"name": third, "words": "γ-Net"}))
            for one in records
            if (getattr(one, "candidate", None) or one.name) == name
        ]
        return (*ordered, *copies)

    def with_svs(one):
        ece = {**one.ece, "svs": spread([0.1, math.nan]) if one.candidate == name else spread([math.nan] * 2)}
        failures = {"svs, seed 1": "there were too few samples."} if one.candidate == name else {}
        return replace(one, ece=ece, failures=failures)

    def row_of_svs(one):
        return replace(one, rows=(*one.rows, replace(one.rows[-1], map="svs", density=None)))

    band = Band((1.0, 2.0, 2.5), (0.5, 1.0, 1.5), (1.5, 3.0, 3.5))
    value = spread([0.02, 0.03])
    points = tuple(
        CoefficientPoint(by, name, dict.fromkeys(("uncalibrated", "temperature", "svs"), value), value, value, value)
        for by in (0.05, 0.1)
    )
    groups = (LearnedGroup(1, 1, 80, 0.8, 9.0, 1.0, (1, 2)), LearnedGroup(2, 5, 0, 0.0, math.nan, math.nan, (0, 0)),
              LearnedGroup(None, None, 20, 0.2, 2.0, 0.5, (2, 1)))  # fmt: skip
    verdict = small.verdicts[0]
    other = replace(verdict, candidate=third, ece_after_temperature=verdict.raw_ece, runs=5, n_compared=2)
    directions = with_third(small.directions)
    directions += tuple(replace(one, map="svs") for one in directions if one.map == "uncalibrated")
    sizes = tuple(
        replace(
            one,
            points=tuple(
                SizePoint(
                    point.rows,
                    {**point.ece, "svs": spread([0.06, math.nan])},
                    {"temperature": 0, "svs": int(point.rows == 100)},
                )
                for point in one.points[place:]
            ),
        )
        for place, one in enumerate(small.validation_sizes)
    )
    large = replace(
        small,
        maps=("uncalibrated", "temperature", "svs"),
        candidates=with_third(small.candidates),
        verdicts=(replace(verdict, n_compared=2), other),
        calibratability=tuple(map(with_svs, with_third(small.calibratability))),
        refinement=tuple(map(row_of_svs, with_third(small.refinement))),
        directions=directions,
        coefficients=(CoefficientCurve("loss.smoothing", "label_smoothing", points),),
        validation_sizes=sizes,
        epochs=(*small.epochs, replace(small.epochs[0], candidate=third, learned={"gamma_mean": band})),
        learned_epochs=(LearnedEpochs("ce", 2, (0.0, 5.0, 10.0), groups, spread([-0.6, -0.5])),),
        map_settings={"temperature": {"criterion": "ece"}, "svs": {}},
    )
    return replace(large, shift=made_shift(large))
