"""ConfidNet: what it learns, that the classifier stays as it is, and what it refuses."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from calibrant import Predictions, aupr_error, auroc
from calibrant.confidence import ConfidenceHead, ConfidNet, LearnedConfidence
from calibrant.errors import CalibrantWarning, FitError, InputError, SeparableError, UnknownNameError
from calibrant.models import build_model

QUICK = ConfidNet(layers=3, units=16, epochs=6, learning_rate=0.02, batch_size=64)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


def predictions_of(network, samples):
    with torch.no_grad():
        return Predictions.from_logits(network(samples[0]), samples[1])


def weights_of(module):
    return torch.cat([item.detach().flatten() for item in module.parameters()])


def test_it_separates_correct_from_wrong_where_the_softmax_cannot(network, samples, other_samples):
    learned = QUICK.fit(network, samples)
    before, after = predictions_of(network, other_samples), learned.top_label(other_samples)
    assert auroc(before) < 0.6
    assert auroc(after) > 0.95
    assert torch.equal(after.correct, before.correct)


def test_predictions_are_those_of_the_network_to_the_last_bit(network, samples, other_samples):
    learned = QUICK.fit(network, samples)
    logits, log_odds = learned(other_samples[0])
    assert learned.model is network
    assert torch.equal(logits, network(other_samples[0]))
    assert log_odds.shape == (500,)
    confidence = learned.confidence(other_samples[0])
    assert confidence.min() > 0
    assert confidence.max() < 1
    assert torch.allclose(confidence.logit(), log_odds.detach().double())


def test_confidences_that_round_to_one_still_differ_in_their_log_odds():
    head = ConfidenceHead(1, layers=1)
    with torch.no_grad():
        head.layers[0].weight.fill_(1)
        head.layers[0].bias.zero_()
    predictions = Predictions.from_logits([[0.0, 1.0], [0.0, 1.0]], [1, 0])
    top = head.top_label(predictions, [[60.0], [50.0]])
    assert top.confidence.tolist() == [1.0, 1.0]
    assert auroc(top) == 1.0


def test_it_learns_the_mean_true_class_probability_of_samples_it_cannot_tell_apart():
    generator = torch.Generator().manual_seed(0)
    group = torch.randint(0, 3, (1500,), generator=generator)
    logits = 2 * torch.randn(1500, 4, generator=generator)
    labels = torch.where(group == 0, logits.argmax(1), torch.where(group == 1, logits.argmin(1), 2))
    predictions = Predictions.from_logits(logits, labels)
    features = nn.functional.one_hot(group, 3).float()
    head = ConfidNet(layers=2, units=16, epochs=30, learning_rate=0.02, choose_by="mse").fit_features(
        predictions, features
    )
    target = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    for item in range(3):
        result = head.confidence(torch.eye(3)[item : item + 1])
        assert float(result) == pytest.approx(float(target[group == item].mean()), abs=0.05)


def test_the_epoch_that_is_kept_is_the_one_that_is_best_on_the_held_out_samples(network, samples):
    message = []
    method = dataclasses.replace(QUICK, learning_rate=0.05, epochs=15, choose_by="auroc")
    head = method.fit(network, samples, progress=lambda text, epochs: message.append((text, epochs))).head
    values = [float(text.rsplit(" ", 1)[1]) for text, _ in message]
    assert [epochs for _, epochs in message] == list(range(1, 16))
    assert head.choice.epochs == 15
    assert head.choice.value == pytest.approx(max(values), abs=1e-3)
    assert head.choice.epoch < 15
    stopped_there = dataclasses.replace(method, epochs=head.choice.epoch).fit(network, samples).head
    assert torch.equal(weights_of(stopped_there), weights_of(head))


def test_the_choice_gives_how_good_the_softmax_is_on_the_same_samples(network, samples):
    head = QUICK.fit(network, samples).head
    assert head.choice.held_out == 60
    assert head.choice.criterion == "aupr_error"
    assert head.choice.softmax_value < 0.5 < head.choice.value
    assert head.choice.beats_softmax
    assert head.summary.method == "confidnet"
    assert head.summary.rows == 600
    assert head.summary.settings["units"] == 16
    assert "against" in head.summary.notes[0]


def test_it_says_when_it_is_no_better_than_the_softmax():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(600, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    head = QUICK.fit_features(Predictions.from_logits(logits, labels), torch.zeros(600, 2))
    assert not head.choice.beats_softmax
    assert "no better than the softmax" in head.summary.notes[-1]
    samples = Predictions.from_logits(logits.repeat(2, 1), labels.repeat(2))
    with pytest.warns(CalibrantWarning, match=r"aupr_error .* on 120 held-out samples"):
        QUICK.fit_features(samples, torch.zeros(1200, 2))


def test_the_same_seed_gives_the_same_head_and_moves_no_other_random_numbers(network, samples):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = QUICK.fit(network, samples), QUICK.fit(network, samples)
    other = dataclasses.replace(QUICK, seed=1).fit(network, samples)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights_of(first.head), weights_of(second.head))
    assert not torch.equal(weights_of(first.head), weights_of(other.head))


def test_the_head_is_the_same_from_a_model_and_from_its_cached_features(network, samples):
    with torch.no_grad():
        features = network.features(samples[0])
    cached = QUICK.fit_features(predictions_of(network, samples), features)
    assert torch.allclose(weights_of(cached), weights_of(QUICK.fit(network, samples).head), atol=1e-5)


class Numbered(Dataset):
    def __init__(self, samples, broken=None):
        self.rows, self.broken = samples, broken

    def __len__(self):
        return len(self.rows[1])

    def __getitem__(self, row):
        if row == self.broken:
            raise OSError("this file is damaged")
        return self.rows[0][row], int(self.rows[1][row])


def test_tensors_arrays_data_sets_and_loaders_give_the_same_head(network, samples):
    wanted = weights_of(QUICK.fit(network, samples).head)
    arrays = samples[0].numpy(), samples[1].numpy().astype(np.int32)
    for data in (
        arrays,
        TensorDataset(*samples),
        Numbered(samples),
        DataLoader(TensorDataset(*samples), batch_size=64),
    ):
        assert torch.allclose(weights_of(QUICK.fit(network, data).head), wanted, atol=1e-5)


def test_a_loader_that_shuffles_is_read_once(network, samples, other_samples):
    loader = DataLoader(
        TensorDataset(*samples), batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    learned = QUICK.fit(network, loader)
    assert auroc(learned.top_label(DataLoader(Numbered(other_samples), batch_size=70))) > 0.95


@pytest.mark.parametrize("tuned", [0, 2])
def test_the_network_comes_back_as_it_was(network, samples, tuned, state_of, same_state):
    network.train()
    network.body[0].eval()  # modes that eval() and train() would not bring back
    network.head.bias.requires_grad_(False)
    network.head.weight.grad = torch.ones_like(network.head.weight)
    before = state_of(network)
    dataclasses.replace(QUICK, epochs=2, fine_tune_epochs=tuned).fit(network, samples)
    assert same_state(before, state_of(network))


@pytest.mark.parametrize("tuned", [0, 2])
def test_the_network_comes_back_as_it_was_after_an_exception(network, samples, tuned, state_of, same_state):
    def stop(_text, epochs):
        if epochs == 1 + tuned:
            raise KeyboardInterrupt

    network.train()
    before = state_of(network)
    method = dataclasses.replace(QUICK, epochs=2, fine_tune_epochs=tuned)
    with pytest.raises(KeyboardInterrupt):
        method.fit(network, samples, progress=stop)
    with pytest.raises(InputError, match="OSError: this file is damaged"):
        method.fit(network, Numbered(samples, broken=300))
    assert same_state(before, state_of(network))


def test_dropout_and_batch_statistics_play_no_part_in_training_mode(network, samples):
    asleep = QUICK.fit(network, samples)
    assert torch.equal(weights_of(QUICK.fit(network.train(), samples).head), weights_of(asleep.head))


def test_it_fits_where_gradients_are_switched_off(network, samples):
    wanted = weights_of(QUICK.fit(network, samples).head)
    with torch.no_grad():
        assert torch.equal(weights_of(QUICK.fit(network, samples).head), wanted)
    with torch.inference_mode():
        inputs = samples[0].clone()
        assert torch.equal(weights_of(QUICK.fit(network, (inputs, samples[1])).head), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_networks_of_other_precision_are_taken(network, samples, dtype):
    learned = QUICK.fit(network.to(dtype), (samples[0].to(dtype), samples[1]))
    assert next(learned.head.parameters()).dtype == torch.float32
    assert auroc(learned.top_label((samples[0].to(dtype), samples[1]))) > 0.9


def test_a_network_of_the_library_is_taken():
    digits = build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8)
    inputs = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    learned = dataclasses.replace(QUICK, epochs=1).fit(digits, (inputs, torch.arange(60) % 10))
    assert learned.head.n_features == 110


def test_a_fine_tuned_copy_learns_what_the_features_had_lost(samples, other_samples, network):
    class Blind(nn.Module):
        """The same, but its second feature, which tells, is all but gone."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([1.0, 1e-3, 1.0, 1.0]))
            self.head = network.head

        def features(self, inputs):
            return inputs * self.scale

        def forward(self, inputs):
            return self.head(self.features(inputs))

    blind = Blind()
    method = dataclasses.replace(QUICK, choose_by="mse", epochs=3, fine_tune_epochs=25, fine_tune_learning_rate=0.02)
    plain = dataclasses.replace(method, fine_tune_epochs=0).fit(blind, samples)
    message = []
    learned = method.fit(blind, samples, progress=lambda text, epochs: message.append((text, epochs)))
    assert [epochs for _, epochs in message] == list(range(1, 29))
    assert message[-1][0].startswith("fine-tuning, epoch 25 of 25")
    assert learned.head.choice.fine_tuned > 0
    assert learned.head.choice.value < plain.head.choice.value
    assert auroc(learned.top_label(other_samples)) > auroc(plain.top_label(other_samples)) + 0.2
    assert float(blind.scale.detach()[1]) == pytest.approx(1e-3)
    assert float(learned.encoder.scale[1]) > 1e-2
    assert not any(item.requires_grad for item in learned.encoder.parameters())
    assert torch.equal(learned(other_samples[0])[0], blind(other_samples[0]))


def test_fine_tuning_that_does_not_help_is_taken_back(network, samples):
    plain = QUICK.fit(network, samples)
    method = dataclasses.replace(QUICK, fine_tune_epochs=2, fine_tune_learning_rate=10.0)
    learned = method.fit(network, samples)
    assert learned.encoder is None
    assert learned.head.choice.fine_tuned == 0
    assert torch.equal(weights_of(learned.head), weights_of(plain.head))


def test_fine_tuning_leaves_batch_statistics_of_the_copy_alone(network, samples):
    method = dataclasses.replace(QUICK, epochs=1, choose_by="mse", fine_tune_epochs=3, fine_tune_learning_rate=0.01)
    learned = method.fit(network, samples)
    assert not torch.equal(learned.encoder.body[0].weight, network.body[0].weight)
    assert torch.equal(learned.encoder.body[0].running_mean, network.body[0].running_mean)
    assert learned.encoder.body[0].num_batches_tracked == network.body[0].num_batches_tracked


def test_fine_tuning_reads_data_sets_too_and_refuses_loaders(network, samples):
    method = dataclasses.replace(QUICK, epochs=1, choose_by="mse", fine_tune_epochs=2, fine_tune_learning_rate=0.01)
    from_tensors, from_items = method.fit(network, samples), method.fit(network, Numbered(samples))
    assert torch.allclose(weights_of(from_tensors.encoder), weights_of(from_items.encoder), atol=1e-5)
    with pytest.raises(InputError, match="needs them by number; got a DataLoader"):
        method.fit(network, DataLoader(TensorDataset(*samples)))
    with pytest.raises(InputError, match="fine_tune_epochs must be 0"):
        method.fit_features(predictions_of(network, samples), samples[0])


def test_a_network_that_cannot_be_copied_cannot_be_fine_tuned(network, samples):
    network.cache = network.head(torch.zeros(1, 4, requires_grad=True))  # no leaf, which torch does not copy
    with pytest.raises(InputError, match="must let itself be copied; copying raised RuntimeError"):
        dataclasses.replace(QUICK, epochs=1, fine_tune_epochs=1).fit(network, samples)


def test_samples_that_are_all_correct_cannot_be_ranked(network, samples):
    right = samples[0], predictions_of(network, samples).predicted
    with pytest.raises(SeparableError, match=r"600 samples 0 are wrong.*choose_by='mse'"):
        QUICK.fit(network, right)
    with pytest.warns(CalibrantWarning, match="No prediction is wrong"):
        learned = dataclasses.replace(QUICK, choose_by="mse", epochs=1).fit(network, right)
    assert "No prediction is wrong" in learned.head.summary.notes[-1]


def test_training_that_diverges_is_reported(network, samples):
    wild = dataclasses.replace(QUICK, learning_rate=1e30)
    with pytest.raises(FitError, match="lower learning rate"):
        wild.fit(network, samples)


def test_a_network_without_features_is_reported_how_to_be_wrapped(samples):
    with pytest.raises(InputError, match=r"Linear has no method features and no layer head. Name its last layer"):
        QUICK.fit(nn.Linear(4, 2), samples)
    with pytest.raises(InputError, match=r"model must be a torch.nn.Module; got function"):
        QUICK.fit(lambda inputs: inputs, samples)


def test_features_that_are_a_layer_are_not_taken_for_the_last_ones(network, samples):
    layered = nn.Module()
    layered.features, layered.head = nn.Linear(4, 4), network.head
    with pytest.raises(InputError, match="has no method features"):
        QUICK.fit(layered, samples)


class Bent(nn.Module):
    """A network whose features are made by a function that a test gives."""

    def __init__(self, features, head, forward=None):
        super().__init__()
        self.made, self.head, self.whole = features, head, forward

    def features(self, inputs):
        return self.made(inputs)

    def forward(self, inputs):
        return self.head(self.made(inputs)) if self.whole is None else self.whole(inputs)


@pytest.mark.parametrize(
    ("bent", "message"),
    [
        (lambda head: Bent(lambda x: x[:, :, None], head), r"shape \(n, d\).*got shape \(64, 4, 1\)|\(8, 4, 1\)"),
        (lambda head: Bent(lambda x: (x, x), head), "got tuple"),
        (lambda head: Bent(lambda x: x[:1], head), "a row for each of 8 inputs; got 1"),
        (lambda head: Bent(lambda x: x / 0, head), "features must be finite"),
        (lambda head: Bent(lambda x: x, head, lambda x: 2 * head(x)), r"must be head\(features\(x\)\)"),
        (lambda head: Bent(lambda x: x, head, lambda x: head(x)[:, 0]), r"logits of shape \(n, k\)"),
        (lambda head: Bent(lambda x: x, head, lambda x: {"logits": head(x)}), "got dict"),
    ],
)
def test_features_that_are_none_are_reported(network, samples, bent, message):
    with pytest.raises(InputError, match=message):
        QUICK.fit(bent(network.head), samples)


def test_a_number_that_is_not_finite_is_found_in_its_samples(network, samples):
    inputs = samples[0].clone()
    inputs[200, 2] = torch.nan
    with pytest.raises(InputError, match=r"features must be finite; got nan at row 200"):
        QUICK.fit(network, (inputs, samples[1]))
    with pytest.raises(InputError, match=r"features must be finite; got nan at row 200 \(counting from 0\), column 2"):
        QUICK.fit_features(predictions_of(network, samples), inputs)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((torch.zeros(3, 4), torch.tensor([0, 1, 2])), "labels must lie in 0..1"),
        ((torch.zeros(3, 4), torch.zeros(3)), "whole numbers of an integer type"),
        ((torch.zeros(3, 4), torch.zeros(2, dtype=torch.long)), "same number of rows"),
        ((torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)), "at least one sample"),
        ((torch.zeros(1, 4), torch.zeros(1, dtype=torch.long)), "at least two samples"),
        ((torch.tensor(1.0), torch.tensor(1)), "got a single number"),
        (torch.zeros(3, 4), "data must be a tuple"),
        ((torch.zeros(3, 4),), "got a tuple of 1"),
        (DataLoader(TensorDataset(torch.zeros(3, 4))), "a batch must be a pair"),
        (DataLoader(TensorDataset(torch.zeros(3, 4), torch.zeros(3, 1, 1).long())), "one number a row"),
    ],
)
def test_data_that_are_no_labelled_samples_are_reported(network, data, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(QUICK, choose_by="mse").fit(network, data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 0}, "layers must be at least 1"),
        ({"units": 2.5}, "units must be a whole number"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"fine_tune_epochs": -1}, "fine_tune_epochs must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"held_out": 1.0}, "held_out must lie between 0 and 1, without these; got 1.0"),
        ({"held_out": 0}, "held_out must lie between 0 and 1, without these; got 0"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ConfidNet(**options)


def test_a_criterion_that_does_not_exist_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean auroc"):
        ConfidNet(choose_by="aurok")


def test_options_of_numpy_become_pythons_own():
    assert type(ConfidNet(epochs=np.int64(3)).settings()["epochs"]) is int


def test_progress_must_be_a_function(network, samples):
    with pytest.raises(InputError, match="progress must be a function"):
        QUICK.fit(network, samples, progress=True)


def test_features_of_another_width_or_number_are_refused(network, samples):
    head = QUICK.fit(network, samples).head
    predictions = predictions_of(network, samples)
    with pytest.raises(InputError, match=r"4 columns.*got 3"):
        head.top_label(predictions, torch.zeros(600, 3))
    with pytest.raises(InputError, match="as many rows as the predictions, 600; got 5"):
        head.top_label(predictions, torch.zeros(5, 4))
    with pytest.raises(InputError, match="must be finite"):
        head.top_label(predictions, torch.full((600, 4), torch.nan))


def test_inputs_that_the_network_cannot_take_are_reported_by_their_shape(network, samples):
    learned = QUICK.fit(network, samples)
    wrong = torch.zeros(600, 7)
    message = r"inputs of shape \(n, 7\); for \d+ it raised RuntimeError"
    for run in (
        lambda: QUICK.fit(network, (wrong, samples[1])),
        lambda: learned.top_label((wrong, samples[1])),
        lambda: learned.confidence(wrong),
    ):
        with pytest.raises(InputError, match=message):
            run()


def test_a_head_of_another_kind_is_refused(network):
    with pytest.raises(InputError, match="head must be what ConfidNet or TrustScore fitted"):
        LearnedConfidence(network, nn.Linear(4, 1))


def test_top_label_leaves_modes_as_they_are_and_ignores_them(network, samples, state_of, same_state):
    learned = QUICK.fit(network, samples)
    asleep = learned.top_label(samples)
    learned.train()
    before = state_of(learned)
    assert torch.equal(learned.top_label(samples, batch_size=7).correct, asleep.correct)
    assert same_state(before, state_of(learned))


@needs_cuda
@pytest.mark.parametrize("tuned", [0, 2])
def test_it_fits_on_an_accelerator(network, samples, other_samples, tuned):
    method = dataclasses.replace(QUICK, fine_tune_epochs=tuned, fine_tune_learning_rate=1e-4)
    learned = method.fit(network.cuda(), samples)
    assert next(learned.head.parameters()).is_cuda
    assert auroc(learned.top_label(other_samples)) > 0.95


def test_inputs_augmented_by_nothing_give_the_head_of_cached_features(network, samples):
    method = dataclasses.replace(QUICK, fine_tune_epochs=1)
    first, second = (method.fit(network, samples, augment=augment) for augment in (None, torch.clone))
    torch.testing.assert_close(weights_of(second.head), weights_of(first.head))
    assert second.head.choice == first.head.choice


def test_every_fitted_sample_is_augmented_in_every_epoch_and_no_held_out_one(network, samples, state_of, same_state):
    before, seen = state_of(network), []
    QUICK.fit(network, samples, augment=lambda inputs: seen.append(len(inputs)) or inputs)
    assert sum(seen) == QUICK.epochs * (600 - round(0.1 * 600))
    assert same_state(before, state_of(network))


def test_the_target_is_the_probability_that_the_classifier_gives_the_augmented_input(network, samples, other_samples):
    turned = torch.tensor([-1.0, 1.0, 1.0, 1.0])  # right becomes wrong, and wrong right
    learned = QUICK.fit(network, samples, augment=lambda inputs: inputs * turned)
    assert auroc(learned.top_label(other_samples)) < 0.1


def test_given_samples_choose_the_epoch_and_are_not_fitted_on(network, samples):
    held_out, seen = torch.arange(500, 600), []
    method = dataclasses.replace(QUICK, fine_tune_epochs=1)
    learned = method.fit(
        network, samples, validation=held_out, augment=lambda inputs: seen.append(inputs.clone()) or inputs
    )
    assert learned.head.choice.held_out == 100
    fitted = torch.cat(seen[: len(seen) // (QUICK.epochs + 1)])
    torch.testing.assert_close(fitted.sort(dim=0).values, samples[0][:500].sort(dim=0).values)
    same = method.fit(network, samples, validation=held_out.flip(0).tolist(), augment=torch.clone)
    torch.testing.assert_close(weights_of(same.head), weights_of(learned.head))
    of_them = learned.top_label((samples[0][500:], samples[1][500:]))
    assert learned.head.choice.value == pytest.approx(aupr_error(of_them))


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ([0.5, 1.0], "whole numbers"),
        ([[0, 1]], "whole numbers"),
        (torch.ones(600, dtype=torch.bool), "whole numbers"),
        ([], "whole numbers|some of the samples"),
        (torch.arange(600), "some of the samples 0 to 599, not all"),
        ([3, 600], "some of the samples 0 to 599"),
        ([-1, 3], "some of the samples 0 to 599"),
        ([3, 3], "each once"),
    ],
)
def test_validation_that_names_no_part_of_the_samples_is_refused(network, samples, validation, message):
    with pytest.raises(InputError, match=message):
        QUICK.fit(network, samples, validation=validation)


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        ("flip", "augment must be a function"),
        (lambda inputs: inputs[1:], "as many inputs as it receives, 64; got shape"),
        (lambda inputs: inputs.tolist(), "as many inputs as it receives, 64; got list"),
    ],
)
def test_an_augmentation_that_is_none_is_refused(network, samples, augment, message):
    with pytest.raises(InputError, match=message):
        QUICK.fit(network, samples, augment=augment)


def test_augmentation_refuses_a_loader(network, samples):
    loader = DataLoader(TensorDataset(*samples), batch_size=50)
    with pytest.raises(InputError, match="augmentation reads the samples several times"):
        QUICK.fit(network, loader, augment=torch.clone)


@pytest.mark.parametrize("kind", [True, False])
def test_validation_of_one_kind_of_predictions_chooses_no_epoch(network, samples, kind):
    with torch.no_grad():
        correct = network(samples[0]).argmax(dim=1) == samples[1]
    validation = (correct == kind).nonzero()[:2, 0]
    with pytest.raises(SeparableError, match="needs a correct and a wrong prediction among the samples of validation"):
        QUICK.fit(network, samples, validation=validation)
    assert (
        dataclasses.replace(QUICK, choose_by="mse").fit(network, samples, validation=validation).head.choice.held_out
        == 2
    )
