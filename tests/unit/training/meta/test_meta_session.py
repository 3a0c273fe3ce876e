"""A network trained with a loss that is learned: resumed to the bit, recorded, and refused where it cannot be."""

import json
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from calibrant import catalogue
from calibrant.datasets import Dataset, DigitsReader, split_dataset
from calibrant.datasets.dataset import Samples
from calibrant.errors import CalibrantWarning, FileError, FitError, InputError
from calibrant.losses import FocalLoss, MetaFocalLoss
from calibrant.models import build_model
from calibrant.processes import ProcessGroup
from calibrant.training import (
    Recipe,
    Run,
    RuntimeOptions,
    Session,
    TrainingData,
    load_learned_loss,
    load_network,
    train_runs,
    train_together,
)
from calibrant.training.folder import RunFolder

CPU = torch.device("cpu")
SMALL = {"epochs": 4, "batch_size": 32, "learning_rate": 0.05, "nesterov": True}


class Dropping(nn.Module):
    """With all that a network may have that changes or is drawn in training."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3))
        self.head = nn.Linear(288, 10)

    def features(self, inputs):
        return self.body(inputs)

    def forward(self, inputs):
        return self.head(self.features(inputs))


@pytest.fixture(scope="module")
def digits():
    whole = DigitsReader().read()
    return Dataset("digits", whole.class_names, whole.training[:600], whole.test[:200], pixel_scale=whole.pixel_scale)


@pytest.fixture(scope="module")
def data(digits):
    return TrainingData.of(digits, split_dataset(digits, "8:1:1", seed=0))


def session_of(data, loss, *, model=None, evaluate_every=1, **recipe):
    torch.manual_seed(0)
    runtime = RuntimeOptions(traced=True, evaluate_every=evaluate_every)
    return Session(model or Dropping(), loss, data.on(CPU), Recipe(**{**SMALL, **recipe}), runtime)


def epochs(session, count):
    for _ in range(count):
        session.begin_epoch()
        for _ in range(session.steps_an_epoch):
            session.advance()
        session.end_epoch()


def without_time(records):
    return [replace(record, seconds=0.0) for record in records]


@pytest.mark.parametrize("name", catalogue.meta_losses)
def test_two_epochs_and_two_more_are_four_to_the_last_bit(data, name):
    straight, first, second = (
        session_of(data, catalogue.parse_any_loss(name), seed=3, evaluate_every=2) for _ in range(3)
    )
    with torch.random.fork_rng():
        epochs(straight, 4)
        epochs(first, 2)
        state, records = first.state(), list(first.records)
        epochs(first, 1)
        second.restore(state, records)
        epochs(second, 2)
    assert any(part.startswith("meta.exp_avg") for part in state)
    ends = straight.state(), second.state()
    assert all(torch.equal(ends[0][part], ends[1][part]) for part in ends[0])
    assert without_time(straight.records) == without_time(second.records)


def test_a_loss_that_never_learns_and_has_gamma_1_trains_as_focal_loss_does(data, monkeypatch):
    def one(net, features):
        return 1 + 0 * (features @ net.prototypes).sum(dim=1) * net.weight.sum()

    monkeypatch.setattr("calibrant.losses.meta.GammaNet.unclipped", one)
    learned, plain = session_of(data, MetaFocalLoss()), session_of(data, FocalLoss(gamma=1.0))
    with torch.random.fork_rng():
        epochs(learned, 2)
    with torch.random.fork_rng():
        epochs(plain, 2)
    for mine, other in zip(learned.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


def test_gamma_begins_at_1_and_what_becomes_of_it_is_written_down(data):
    session = session_of(data, MetaFocalLoss(learning_rate=1e-9), epochs=1)
    with torch.random.fork_rng():
        epochs(session, 1)
    told = session.records[0].learned
    assert set(told) == {"gamma_mean", "gamma_std", "gamma_clipped"}
    assert 0.3 < told["gamma_mean"] < 3  # on other samples, by a network that has moved
    assert told["gamma_std"] > 0
    again = type(session.records[0]).from_dict(json.loads(json.dumps(session.records[0].as_dict())))
    assert again == session.records[0]


def test_gamma_moves_when_it_is_learned(data):
    session = session_of(data, MetaFocalLoss(learning_rate=1e-4))
    before = [each.detach().clone() for each in session.loss.parameters()]
    with torch.random.fork_rng():
        epochs(session, 2)
    assert not any(torch.equal(one, other) for one, other in zip(before, session.loss.parameters(), strict=True))


def test_a_gamma_that_explodes_is_clipped_and_warned_of(data):
    session = session_of(data, MetaFocalLoss(limit=0.5))
    with torch.random.fork_rng():
        with pytest.warns(CalibrantWarning, match="above its limit"):
            epochs(session, 1)
        epochs(session, 1)  # warned of once
    assert all(0 < record.learned["gamma_clipped"] <= 1 for record in session.records)


def test_a_run_leaves_what_every_run_leaves_and_its_gammas(digits, tmp_path):
    run = Run(tmp_path / "run", "digits_cnn", MetaFocalLoss(), Recipe(**{**SMALL, "epochs": 2}))
    train_runs([run], digits, split="8:1:1", device=CPU)
    folder = RunFolder(run.folder)
    assert folder.is_finished
    assert folder.settings().loss["loss"] == "meta_focal"
    assert [set(record.learned) for record in folder.records()] == [{"gamma_mean", "gamma_std", "gamma_clipped"}] * 2
    assert not any("gamma_net" in name for name in folder.weights())


def test_it_learns_the_digits(data):
    networks = {
        name: build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8) for name in catalogue.meta_losses
    }
    recipe = Recipe(**{**SMALL, "epochs": 8, "learning_rate": 0.1})
    sessions = {
        name: Session(network, catalogue.parse_any_loss(name), data.on(CPU), recipe, RuntimeOptions(evaluate_every=8))
        for name, network in networks.items()
    }
    train_together(list(sessions.values()))
    accuracies = {name: session.records[-1].held_out["test"].accuracy for name, session in sessions.items()}
    assert min(accuracies.values()) > 0.85, accuracies


def test_a_run_whose_gamma_is_cut_off_is_warned_of_by_its_folder(digits, tmp_path):
    run = Run(tmp_path / "run", "digits_cnn", MetaFocalLoss(limit=0.5), Recipe(**{**SMALL, "epochs": 1}))
    with pytest.warns(CalibrantWarning, match=f"^{re.escape(str(run.folder))}: γ is above its limit"):
        train_runs([run], digits, split="8:1:1", device=CPU)


class TestRefusals:
    def test_a_batch_of_one_sample_leaves_no_folder(self, digits, tmp_path):
        run = Run(tmp_path / "run", "digits_cnn", MetaFocalLoss(), Recipe(**{**SMALL, "batch_size": 1}))
        with pytest.raises(InputError, match="batch_size must be at least 2 with meta_focal"):
            train_runs([run], digits, split="8:1:1", device=CPU)
        assert not run.folder.exists()

    def test_batches_too_small_to_hold_several_classes_are_warned_of_with_what_to_do(self, data):
        session = session_of(data, MetaFocalLoss(), batch_size=2)
        with (
            torch.random.fork_rng(),
            pytest.warns(CalibrantWarning, match="of 2 samples has class .* larger batch_size"),
        ):
            epochs(session, 1)

    def test_data_without_samples_to_tune_on(self, digits):
        held_out = TrainingData.of(digits, split_dataset(digits, "holdout", seed=0))
        with pytest.raises(InputError, match="8:1:1"):
            session_of(held_out, MetaFocalLoss())

    def test_samples_of_one_class_to_tune_on(self, data):
        alike = Samples(data.meta.inputs, torch.zeros_like(data.meta.labels))
        with pytest.raises(InputError, match="several classes; got 60 of 1"):
            session_of(replace(data, meta=alike), MetaFocalLoss())

    def test_mixed_samples(self, data):
        with pytest.raises(InputError, match="mixup must be 0"):
            session_of(data, MetaFocalLoss(), mixup=0.2)

    def test_several_processes(self, data):
        with pytest.raises(InputError, match="one process"):
            Session(Dropping(), MetaFocalLoss(), data.on(CPU), Recipe(**SMALL), None, ProcessGroup(2, 0))

    def test_a_network_without_features(self, data):
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        with pytest.raises(InputError, match="Wrap it"):
            session_of(data, MetaFocalLoss(), model=network)


def test_a_rate_that_follows_the_network_stops_with_it(data):
    steps = {"schedule": "steps", "milestones": (2,), "decay": 0.0}
    for schedule in ("constant", "network"):
        session = session_of(data, MetaFocalLoss(schedule=schedule, learning_rate=1e-3), **steps)
        with torch.random.fork_rng():
            epochs(session, 2)
            before = session.loss.gamma_net.weight.detach().clone()
            epochs(session, 2)
        assert torch.equal(session.loss.gamma_net.weight, before) == (schedule == "network")


def test_the_learned_loss_of_a_run_can_be_asked_for_gamma_of_any_samples(digits, tmp_path):
    run = Run(
        tmp_path / "run",
        "digits_cnn",
        catalogue.parse_any_loss("meta_focal(objective=sece(bandwidth=0.1))"),
        Recipe(**SMALL),
    )
    train_runs([run], digits, split="8:1:1", device=CPU)
    loss, network = load_learned_loss(run.folder), load_network(run.folder)
    assert loss.objective.bandwidth == 0.1
    part = split_dataset(digits, "8:1:1", seed=0).calibration
    with torch.no_grad():
        standardise, model = network.children()
        gamma = loss.gamma(model.features(standardise(part.inputs.float())))
    last = RunFolder(run.folder).records()[-1].learned
    assert float(gamma.mean()) == pytest.approx(last["gamma_mean"], rel=1e-4)
    assert float(gamma.std(correction=0)) == pytest.approx(last["gamma_std"], rel=1e-3, abs=1e-6)


def test_a_run_whose_loss_is_not_learned_has_none_to_load(digits, tmp_path):
    run = Run(tmp_path / "run", "digits_cnn", FocalLoss(), Recipe(**{**SMALL, "epochs": 1}))
    train_runs([run], digits, split="8:1:1", device=CPU)
    with pytest.raises(FileError, match=r"loss\.safetensors"):
        load_learned_loss(run.folder)


def test_the_callers_random_state_plays_no_part(data):
    states = []
    for seed in (0, 1):
        model, loss = Dropping(), MetaFocalLoss()
        model.load_state_dict({name: torch.full_like(values, 0.01) for name, values in model.state_dict().items()})
        torch.manual_seed(seed)
        states.append(Session(model, loss, data.on(CPU), Recipe(**SMALL)).state())
    assert all(torch.equal(values, states[1][name]) for name, values in states[0].items())


@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
def test_one_that_diverges_is_named_and_the_others_are_finished(digits, tmp_path):
    rates = {"bad": ("meta_focal", 1e6), "good": ("ce", 0.05)}
    runs = [
        Run(
            tmp_path / name,
            "digits_cnn",
            catalogue.parse_any_loss(loss),
            Recipe(epochs=1, batch_size=64, learning_rate=rate),
        )
        for name, (loss, rate) in rates.items()
    ]
    with pytest.raises(FitError, match=r"bad: the .* must stay finite"):
        train_runs(runs, digits, split="8:1:1", device=CPU)
    assert RunFolder(tmp_path / "good").is_finished


def test_images_that_the_network_does_not_take_are_an_input_error(digits, tmp_path):
    wide = {part: Samples(getattr(digits, part).inputs.repeat(1, 1, 1, 2), getattr(digits, part).labels)
            for part in ("training", "test")}  # fmt: skip
    run = Run(tmp_path / "run", "digits_cnn", MetaFocalLoss(), Recipe(epochs=1, batch_size=64))
    with pytest.raises(InputError, match=r"must take inputs of shape \(n, 1, 8, 16\)"):
        train_runs([run], replace(digits, **wide), split="8:1:1", device=CPU)
    assert not run.folder.exists()
