"""Everything at once, and as JSON."""

import json

import pytest

from calibrant.diagnosis import Diagnosis, diagnose, read_runs
from calibrant.errors import InputError, UnknownNameError


@pytest.fixture(scope="module")
def found(trained):
    return diagnose(read_runs(list(trained.values())), resamples=50, draws=1)


def test_trained_runs_are_diagnosed_from_their_folders(found):
    assert [each.name for each in found.candidates] == ["ce", "label_smoothing(0.1)"]
    assert (found.baseline, found.n, found.maps) == ("ce", 100, ("uncalibrated", "temperature", "histogram", "svs"))
    assert [each.candidate for each in found.verdicts] == ["label_smoothing(0.1)"]
    assert [each.candidate for each in found.calibratability] == ["ce", "label_smoothing(0.1)"]
    assert [each.candidate for each in found.refinement] == ["ce", "label_smoothing(0.1)"]
    assert len(found.directions) == 2 * 4
    assert found.coefficients == ()
    assert [each.points[-1].rows for each in found.validation_sizes] == [100, 100]
    assert [each.epochs for each in found.epochs] == [(1, 2), (1, 2)]
    assert [each.runs for each in found.learned_epochs] == [2, 2]


def test_verdict_and_tables_tell_the_same_numbers(found):
    verdict, (plain, smooth) = found.verdicts[0], found.calibratability
    assert verdict.raw_ece.candidate == pytest.approx(smooth.ece["uncalibrated"].mean)
    assert verdict.raw_ece.baseline == pytest.approx(plain.ece["uncalibrated"].mean)
    assert verdict.ece_after_temperature.candidate == pytest.approx(smooth.ece["temperature"].mean)
    assert verdict.auroc.candidate == pytest.approx(found.refinement[1].rows[0].metrics["auroc"].mean)
    gap = found.directions[0].gap.mean
    assert gap == pytest.approx(found.refinement[0].rows[0].terms["confidence_minus_accuracy"].mean)


def test_it_can_be_written_as_json(found):
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain["verdicts"][0]["overall"] == found.verdicts[0].overall
    assert plain["calibratability"][1]["t_tests"]["oracle"]["p"] == found.calibratability[1].t_tests["oracle"].p
    assert plain["calibratability"][1]["differences"]["uncalibrated"]["side"] in {"better", "worse", "alike"}
    assert set(plain["by_seed"]["label_smoothing(0.1)"]["uncalibrated"]["ece"]) == {"0", "1"}
    assert set(plain) == {"candidates", "baseline", "maps", "n", "n_classes", "n_bins", "resamples", "seed", "verdicts",
                          "calibratability", "refinement", "directions", "coefficients", "validation_sizes", "epochs",
                          "learned_epochs", "by_seed", "shift", "map_settings", "effective_n"}  # fmt: skip


def test_the_same_seed_gives_the_same_diagnosis(found, trained):
    again = diagnose(read_runs(list(trained.values())), resamples=50, draws=1)
    assert again.as_dict() == found.as_dict()


def test_a_single_run_is_diagnosed_without_a_verdict(made):
    alone = diagnose(read_runs([made()]), resamples=50, draws=0)
    assert isinstance(alone, Diagnosis)
    assert alone.verdicts == alone.validation_sizes == alone.learned_epochs == alone.epochs == ()
    json.dumps(alone.as_dict(), allow_nan=False)


def test_another_reference_turns_the_verdict_round(trained):
    runs = read_runs([trained["ce-0"], trained["label_smoothing-0"]])
    there, back = (diagnose(runs, baseline=name, resamples=50, draws=0) for name in (None, "label_smoothing(0.1)"))
    assert there.verdicts[0].raw_ece.value == pytest.approx(-back.verdicts[0].raw_ece.value)
    assert back.verdicts[0].candidate == "ce"
    assert not there.verdicts[0].raw_ece.covers_seeds


def test_options_out_of_range_and_unknown_references_are_refused(made):
    runs = read_runs([made()])
    with pytest.raises(UnknownNameError, match="a candidate must be one of ce"):
        diagnose(runs, baseline="focal")
    for options in ({"resamples": 1}, {"draws": -1}, {"n_bins": 0}):
        with pytest.raises(InputError, match="must be at least"):
            diagnose(runs, **options)
