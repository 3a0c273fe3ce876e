"""A fit restores the network and the data, resumes after an interruption, and refuses what it cannot use."""

import dataclasses
import functools
import math
import weakref

import pytest
import torch
from made_networks import tanh_network as network
from torch import nn
from torch.utils.data import DataLoader, Dataset

from calibrant.calibrators import IsotonicOneVsRest, VectorScaling
from calibrant.clamping import (
    ClampingOutcome,
    DataDrivenStart,
    ExactSolver,
    InputSpace,
    NeuralClamping,
    StochasticSolver,
)
from calibrant.clamping.fitting import Journal
from calibrant.errors import CalibrantWarning, Caveat, FileError, FitError, InputError, SeparableError

D, K = 6, 4
EXACT = NeuralClamping(strength=0.05)
PATH = NeuralClamping(strength=(1.0, 0.1), folds=2)
PAPER = dataclasses.replace(NeuralClamping.paper_protocol(), solver=StochasticSolver(epochs=6, batch_size=64))
TOOLKIT = dataclasses.replace(
    NeuralClamping.toolkit(), solver=dataclasses.replace(NeuralClamping.toolkit().solver, epochs=6, batch_size=64)
)
METHODS = {"exact": EXACT, "path": PATH, "paper": PAPER, "toolkit": TOOLKIT}


@torch.no_grad()
def data(n=200, *, shift=0.5, temperature=0.5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, D, generator=generator, dtype=torch.float64)
    probs = (network()(inputs + shift) / temperature).softmax(1)
    return inputs, torch.multinomial(probs, 1, generator=generator)[:, 0]


class KilledError(Exception):
    pass


class Killer:
    """Progress that ends the fit after some calls, and counts them."""

    def __init__(self, after=10**9, error=KeyboardInterrupt):
        self.after, self.error, self.calls = after, error, []

    def __call__(self, what, passes):
        self.calls.append((what, passes))
        if len(self.calls) >= self.after:
            raise self.error


def refusal(method, model, samples, error=InputError):
    with pytest.raises(error) as caught:
        method.fit(model, samples)
    return str(caught.value)


class ClipsFarOut(nn.Module):
    """Linear as far as a probe of ordinary size can see."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, inputs):
        return self.layer(inputs.clamp(-100, 2.5))


def test_a_network_that_clips_its_inputs_far_out_gets_the_delta_of_the_plain_way():
    torch.manual_seed(0)
    model, inputs = ClipsFarOut().eval(), torch.rand(400, 3, dtype=torch.float64)
    with torch.no_grad():
        truth = 3 * model(inputs + torch.tensor([2.2, -1.0, 1.0], dtype=torch.float64))
    labels = torch.multinomial(truth.softmax(dim=1), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    clamped = NeuralClamping(strength=1e-4).fit(model, (inputs, labels))
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(clamped(inputs), labels))
    reached = loss + 1e-4 * float(clamped.delta.square().sum())
    assert reached == pytest.approx(clamped.summary.certificate.objective, rel=1e-3)


class TestTheNetwork:
    def network(self):
        """Every state that could be lost: batch statistics, mixed modes, a frozen weight, a gradient held."""
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, K)
        ).double()
        model(torch.randn(50, D, dtype=torch.float64)).sum().backward()
        model.eval()
        model[1].train()
        model[0].bias.requires_grad_(False)
        return model

    def state(self, model):
        return (
            {name: values.clone() for name, values in model.state_dict().items()},
            [module.training for module in model.modules()],
            [parameter.requires_grad for parameter in model.parameters()],
            [None if item.grad is None else item.grad.clone() for item in model.parameters()],
        )

    def assert_untouched(self, model, before):
        weights, modes, wanted, gradients = self.state(model)
        assert all(torch.equal(values, before[0][name]) for name, values in weights.items())
        assert modes == before[1]
        assert wanted == before[2]
        for one, other in zip(gradients, before[3], strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())

    @pytest.mark.parametrize("method", METHODS)
    def test_it_comes_back_as_it_was(self, method):
        model, samples = self.network(), data()
        before, untouched = self.state(model), samples[0].clone()
        METHODS[method].fit(model, samples)
        self.assert_untouched(model, before)
        assert torch.equal(samples[0], untouched)

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("error", [KeyboardInterrupt, KilledError])
    def test_so_it_does_after_an_exception_in_mid_fit(self, method, error):
        model = self.network()
        before = self.state(model)
        with pytest.raises(error):
            METHODS[method].fit(model, data(), progress=Killer(2, error))
        self.assert_untouched(model, before)

    @pytest.mark.parametrize("method", METHODS)
    def test_so_it_does_after_an_error_of_its_own(self, method):
        class Fails(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.calls, self.training = inner, 0, False

            def forward(self, inputs):
                self.calls += 1
                if self.calls == 9:
                    raise RuntimeError("out of memory")
                return self.inner(inputs)

        inner = self.network()
        before = self.state(inner)
        with pytest.raises(RuntimeError, match="out of memory"):
            METHODS[method].fit(Fails(inner), data())
        self.assert_untouched(inner, before)

    def test_so_it_does_when_it_is_refused(self):
        model = self.network()
        before = self.state(model)
        refusal(EXACT, model, (torch.randn(20, D), torch.arange(20) % K))  # float32
        self.assert_untouched(model, before)

    def test_it_is_calibrated_in_evaluation_mode_whatever_its_own(self):
        model, samples = self.network(), data()
        known = EXACT.fit(nn.Sequential(*model).eval(), samples)
        model.train()
        with pytest.warns(CalibrantWarning, match="the network is in training mode, and stays so"):
            clamped = EXACT.fit(model, samples)
        assert model[3].training
        assert torch.equal(clamped.delta, known.delta)
        assert clamped.temperature == known.temperature

    def test_a_network_that_writes_into_its_input_leaves_the_data_alone(self):
        class Writes(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = network()

            def forward(self, inputs):
                return self.inner(inputs.mul_(2).sub_(1))

        class Plain(Writes):
            def forward(self, inputs):
                return self.inner(inputs * 2 - 1)

        for name in ("path", "toolkit"):
            samples = data()
            before = samples[0].clone()
            result, known = (METHODS[name].fit(model.eval(), samples) for model in (Writes(), Plain()))
            assert torch.equal(samples[0], before)
            assert torch.allclose(result.delta, known.delta, atol=1e-9)

    def test_a_caller_who_has_gradients_off_gets_the_same(self):
        known = EXACT.fit(network(), data())
        with torch.no_grad():
            assert torch.equal(EXACT.fit(network(), data()).delta, known.delta)


class Tracked(Dataset):
    """Makes each input when it is asked for, and knows how many of them are alive."""

    def __init__(self, n=200):
        self.inputs, self.labels = data(n)
        self.alive, self.most = weakref.WeakSet(), 0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        made = self.inputs[row].clone()
        self.alive.add(made)
        self.most = max(self.most, len(self.alive))
        return made, int(self.labels[row])


@pytest.mark.parametrize("method", [PATH, PAPER])
def test_no_more_inputs_than_a_batch_are_ever_held(method):
    samples, batches = Tracked(), weakref.WeakSet()
    most = 0

    class Watched(nn.Sequential):
        def forward(self, inputs):
            nonlocal most
            # What the network is given is x + δ: the inputs themselves are no longer needed, nor are earlier ones.
            batches.add(inputs)
            most = max(most, sum(len(batch) for batch in batches))
            return super().forward(inputs)

    solver = method.solver
    solver = dataclasses.replace(solver, batch_size=16, epochs=1) if method is PAPER else ExactSolver(tolerance=0.1)
    dataclasses.replace(method, solver=solver, batch_size=16).fit(Watched(*network()).eval(), samples)
    assert samples.most <= 2 * 16  # a batch in the making beside one in use
    assert most <= 2 * 16


class TestResuming:
    @pytest.fixture(autouse=True)
    def _eager(self, monkeypatch):
        """Journals that write at every chance."""
        monkeypatch.setattr("calibrant.clamping.neural_clamping.Journal", functools.partial(Journal, every=0.0))

    @pytest.mark.parametrize("after", [3, 12])
    def test_a_killed_search_resumes_and_ends_where_it_would_have(self, tmp_path, after):
        whole, again = Killer(), Killer()
        known = PATH.fit(network(), data(), progress=whole)
        assert math.isfinite(known.summary.strength)
        assert len(whole.calls) > after + 3
        with pytest.raises(KeyboardInterrupt):
            PATH.fit(network(), data(), folder=tmp_path, progress=Killer(after))
        result = PATH.fit(network(), data(), folder=tmp_path, progress=again)
        assert result.summary.strength == known.summary.strength
        assert result.summary.trials == known.summary.trials
        assert torch.allclose(result.delta, known.delta, atol=1e-4)
        assert result.temperature == pytest.approx(known.temperature, rel=1e-4)
        if after > 3:  # until then no strength was done
            assert len(again.calls) < len(whole.calls)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("method", METHODS)
    def test_a_kept_folder_gives_the_same_model_at_once_until_it_is_saved(self, tmp_path, method):
        first, again = Killer(), Killer()
        known = METHODS[method].fit(network(), data(), folder=tmp_path, keep_folder=True, progress=first)
        assert list(tmp_path.glob("*.journal"))
        result = METHODS[method].fit(network(), data(), folder=tmp_path, progress=again)
        assert torch.equal(result.delta, known.delta)
        assert result.temperature == known.temperature
        assert result.summary.notes == known.summary.notes
        assert len(again.calls) <= len(first.calls) / 2
        assert not list(tmp_path.iterdir())

    def test_so_does_a_killed_descent(self, tmp_path):
        method = dataclasses.replace(EXACT, solver=ExactSolver(tolerance=1e-6))
        whole, again = Killer(), Killer()
        known = method.fit(network(), data(), progress=whole)
        with pytest.raises(KeyboardInterrupt):
            method.fit(network(), data(), folder=tmp_path, progress=Killer(4))
        assert [path.name for path in tmp_path.iterdir()] == ["fit-0.journal"]
        result = method.fit(network(), data(), folder=str(tmp_path), progress=again)
        assert torch.equal(result.delta, known.delta)
        assert len(again.calls) == len(whole.calls) - 4

    @pytest.mark.parametrize("method", ["paper", "toolkit"])
    def test_stochastic_descent_resumes_to_the_last_bit(self, tmp_path, method):
        known = METHODS[method].fit(network(), data())
        with pytest.raises(KeyboardInterrupt):
            METHODS[method].fit(network(), data(), folder=tmp_path, progress=Killer(4))
        again = Killer()
        result = METHODS[method].fit(network(), data(), folder=tmp_path, progress=again)
        assert torch.equal(result.delta, known.delta)
        assert result.temperature == known.temperature
        assert len(again.calls) == 2

    @pytest.mark.parametrize("method", [PAPER, EXACT])
    def test_of_several_fits_those_that_are_done_are_not_done_again(self, tmp_path, method, monkeypatch):
        # With a journal that would write nothing else in time.
        monkeypatch.setattr("calibrant.clamping.neural_clamping.Journal", Journal)
        method = dataclasses.replace(method, gamma=(0.0, 1.0), strength=1.0, choose_by="calibration-ece")
        whole = Killer()
        known = method.fit(network(), data(), progress=whole)
        second = next(place for place, (what, _) in enumerate(whole.calls) if "γ = 1" in what)
        with pytest.raises(KeyboardInterrupt):
            method.fit(network(), data(), folder=tmp_path, progress=Killer(second + 1))
        again = Killer()
        result = method.fit(network(), data(), folder=tmp_path, progress=again)
        assert {what for what, _ in again.calls} == {what for what, _ in whole.calls[second:]}
        assert result.summary.gamma == known.summary.gamma
        assert torch.equal(result.delta, known.delta)

    def killed(self, folder):
        with pytest.raises(KeyboardInterrupt):
            EXACT.fit(network(), data(), folder=folder, progress=Killer(2))

    def test_the_beginnings_of_another_fit_are_refused(self, tmp_path):
        self.killed(tmp_path)
        other, (inputs, labels) = network(), data()
        other[0].weight.data[0, 0] += 1e-6
        swapped = labels.clone()
        swapped[0] = (labels[0] + 1) % K
        others = [
            (dataclasses.replace(EXACT, strength=0.06), network(), (inputs, labels)),
            (dataclasses.replace(EXACT, seed=1), network(), (inputs, labels)),
            (EXACT, other, (inputs, labels)),
            (EXACT, network(), (inputs, swapped)),
            (EXACT, network(), (1.001 * inputs, labels)),
            (EXACT, network(), (inputs[:-1], labels[:-1])),
        ]
        for method, model, samples in others:
            with pytest.raises(FileError, match="it holds that of another network, data or settings"):
                method.fit(model, samples, folder=tmp_path)
        EXACT.fit(network(), data(), folder=tmp_path)

    def test_another_batch_size_of_the_loader_is_no_other_fit(self, tmp_path):
        self.killed(tmp_path)
        result = EXACT.fit(network(), DataLoader(Tracked(), batch_size=7), folder=tmp_path)
        assert torch.allclose(result.delta, EXACT.fit(network(), data()).delta, atol=1e-6)

    def test_a_truncated_journal_is_refused_by_name(self, tmp_path):
        self.killed(tmp_path)
        (path,) = tmp_path.iterdir()
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(FileError, match=r"fit-0\.journal cannot be read .*Delete it"):
            EXACT.fit(network(), data(), folder=tmp_path)
        path.unlink()
        EXACT.fit(network(), data(), folder=tmp_path)

    def test_other_files_in_the_folder_stay(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        EXACT.fit(network(), data(), folder=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_a_network_with_a_state_of_its_own_kind_can_be_resumed_too(self, tmp_path):
        class Odd(nn.Sequential):
            def get_extra_state(self):
                return {"version": 3}

            def set_extra_state(self, state):
                pass

        EXACT.fit(Odd(*network()).eval(), data(), folder=tmp_path)


class TestProgress:
    @pytest.mark.parametrize("method", METHODS)
    def test_what_is_done_is_reported_with_a_growing_count(self, method):
        message = Killer()
        METHODS[method].fit(network(), data(), progress=message)
        assert len(message.calls) >= 4
        for what in {what for what, _ in message.calls}:
            counts = [passes for item, passes in message.calls if item == what]
            assert counts == sorted(counts)


class TestEdges:
    @pytest.mark.parametrize("method", [EXACT, PATH, NeuralClamping(), NeuralClamping(strength=math.inf)])
    def test_where_every_prediction_is_correct_the_head_has_no_optimum_and_the_message_says_why(self, method):
        inputs, _ = data()
        message = refusal(method, network(), (inputs, network()(inputs).argmax(1)), FitError)
        assert "the head temperature could not be fitted" in message
        assert "with some wrong predictions" in message

    def test_where_delta_makes_every_sample_right_a_larger_strength_is_advised(self):
        inputs, _ = data(40)
        with torch.no_grad():
            labels = network()(inputs + 0.8).argmax(1)
        message = refusal(NeuralClamping(strength=1e-6), network(), (inputs, labels), SeparableError)
        assert "penalise δ, which caused this, with a larger strength" in message
        assert NeuralClamping(strength=1.0).fit(network(), (inputs, labels)).delta.any()

    def test_where_hardly_any_is_wrong_the_result_is_the_head_alone_and_warns(self):
        inputs, _ = data()
        labels = network()(inputs).argmax(1)
        labels[0] = network()(inputs[:1]).argmin()
        clamped = NeuralClamping().fit(network(), (inputs, labels))
        assert not clamped.delta.any()
        assert clamped.summary.outcome is ClampingOutcome.cross_validation_failed

    def test_labels_worse_than_guessing_drive_the_temperature_to_its_edge_with_one_warning(self):
        inputs, _ = data()
        for method in (NeuralClamping(strength=math.inf), NeuralClamping(strength=1e4)):
            with pytest.warns(CalibrantWarning, match="no better than guessing") as caught:
                clamped = method.fit(network(), (inputs, network()(inputs).argmin(1)))
            assert len(caught) == 1
            assert clamped.temperature > 100
            assert sum("no better than guessing" in note for note in clamped.summary.notes) == 1
            assert clamped.summary.caveats == (Caveat.no_better_than_guessing,)

    @pytest.mark.parametrize("n", [1, 4])
    def test_fewer_samples_than_folds_are_refused(self, n):
        message = refusal(NeuralClamping(), network(), data(n))
        assert message == f"data must have 5 samples or more, one a fold; got {n}. Give more, or a strength."

    def test_one_sample_that_is_correct_has_no_temperature(self):
        inputs, _ = data(1)
        assert "some wrong predictions" in refusal(EXACT, network(), (inputs, network()(inputs).argmax(1)), FitError)

    def test_one_sample_that_is_wrong_is_fitted_if_a_strength_is_given(self):
        inputs, _ = data(1)
        with pytest.warns(CalibrantWarning, match="no better than guessing"):
            clamped = NeuralClamping(strength=1e3).fit(network(), (inputs, network()(inputs).argmin(1)))
        assert clamped.temperature > 100

    def test_one_batch_of_data_is_enough(self):
        loader = DataLoader(Tracked(60), batch_size=60)
        assert EXACT.fit(network(), loader).delta.shape == (D,)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_a_network_in_half_precision_is_calibrated_with_inputs_of_its_own_type(self, dtype):
        inputs, labels = data()
        clamped = EXACT.fit(network().to(dtype), (inputs.to(dtype), labels))
        precise = EXACT.fit(network(), (inputs, labels))
        assert clamped.delta.dtype == torch.float32
        assert clamped(inputs.to(dtype)).dtype == dtype
        assert clamped.temperature == pytest.approx(precise.temperature, rel=0.1)
        assert torch.allclose(clamped.delta.double(), precise.delta, atol=0.1)
        assert "inputs must be of the network's own type" in refusal(EXACT, network().to(dtype), (inputs, labels))

    def test_under_autocast_a_network_is_calibrated_as_it_runs(self):
        inputs, labels = data()
        with torch.autocast("cpu", torch.bfloat16):
            clamped = EXACT.fit(network().float(), (inputs.float(), labels))
        assert clamped.temperature == pytest.approx(EXACT.fit(network(), data()).temperature, rel=0.1)


def with_layer(layer):
    return nn.Sequential(*network(), layer).eval()


class RowsBroken(nn.Module):
    """Gives NaN for one input only."""

    def __init__(self, inputs, row):
        super().__init__()
        self.inner, self.broken = network(), inputs[row].clone()

    def forward(self, inputs):
        is_broken = (inputs == self.broken).all(dim=1, keepdim=True)
        return torch.where(is_broken, math.nan, self.inner(inputs))


class TestBadInput:
    @pytest.mark.parametrize("method", METHODS)
    def test_a_network_that_returns_probabilities_is_refused(self, method):
        message = refusal(METHODS[method], with_layer(nn.Softmax(dim=1)), data())
        assert "must return logits; got probabilities" in message

    def test_logits_that_are_not_finite_are_refused(self):
        model = network()
        model[2].bias.data[0] = math.nan
        assert "logits must be finite" in refusal(EXACT, model, data())

    @pytest.mark.parametrize("method", [EXACT, PATH])
    def test_the_sample_whose_logits_are_not_finite_is_named(self, method):
        inputs, labels = data()
        message = refusal(method, RowsBroken(inputs, 137).eval(), (inputs, labels))
        assert "logits must be finite; got NaN or infinity for row 137" in message

    def test_inputs_of_another_shape_are_refused(self):
        assert "must take inputs of shape (n, 5)" in refusal(
            EXACT, network(), (torch.rand(20, 5).double(), torch.arange(20) % K)
        )

    def test_inputs_of_another_type_are_refused(self):
        inputs, labels = data()
        message = refusal(EXACT, network(), (inputs.float(), labels))
        assert "inputs must be of the network's own type, torch.float64; got torch.float32" in message

    def test_whole_numbers_are_refused_as_delta_has_no_meaning_for_them(self):
        tokens = torch.randint(100, (20, D))
        assert "δ has no meaning for tokens" in refusal(EXACT, network(), (tokens, torch.arange(20) % K))
        pixels = tokens.to(torch.uint8)
        assert "Convert to float as in training" in refusal(EXACT, network(), (pixels, torch.arange(20) % K))

    def test_labels_out_of_range_are_refused(self):
        inputs, labels = data()
        assert "labels must lie in 0..3, as there are 4 classes; got 4" in refusal(
            EXACT, network(), (inputs, labels + 1)
        )
        assert "labels must be at least 0; got -1" in refusal(EXACT, network(), (inputs, labels - 1))
        assert "whole numbers" in refusal(EXACT, network(), (inputs, labels.float()))

    def test_no_samples_are_refused(self):
        inputs, labels = data()
        assert "at least one sample" in refusal(EXACT, network(), (inputs[:0], labels[:0]))

    def test_inputs_outside_the_space_are_refused(self):
        method = NeuralClamping(strength=1.0, space=InputSpace(low=-1.0, high=1.0))
        message = refusal(method, network(), data())
        assert "inputs must lie in the space's range, -1 to 1" in message

    def test_a_function_is_no_network(self):
        assert "model must be an nn.Module" in refusal(EXACT, torch.sin, data())

    def test_a_network_without_a_gradient_is_refused_unless_delta_is_not_wanted(self):
        class Detached(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = network()

            @torch.no_grad()
            def forward(self, inputs):
                return self.inner(inputs)

        for method in (EXACT, PATH):
            assert "must carry a gradient to its inputs" in refusal(method, Detached().eval(), data())
        assert not NeuralClamping(strength=math.inf).fit(Detached().eval(), data()).delta.any()

    def test_gradients_of_hidden_weights_are_none_in_delta(self):
        class Hidden(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = [network()]  # a list is no part of a module, so its weights are not frozen

            def forward(self, inputs):
                return self.inner[0](inputs.detach())

        for method in (EXACT, PATH, NeuralClamping.paper_protocol()):
            assert "must carry a gradient to its inputs" in refusal(method, Hidden().eval(), data())

    def test_a_first_delta_of_zero_cannot_be_divided_by(self):
        inputs, labels = data()
        inputs[0], inputs[1] = -5.0, 5.0
        method = NeuralClamping(strength="tenth-as-term", start=DataDrivenStart(), space=InputSpace(low=-5.0, high=5.0))
        with pytest.warns(CalibrantWarning, match="the data-driven start is δ = 0"):
            message = refusal(method, network(), (inputs, labels))
        assert "divides by the size of the first δ; here it is 0" in message

    def test_a_head_that_has_no_gradient_is_refused(self):
        with pytest.raises(InputError, match="the head must change smoothly with the logits"):
            NeuralClamping(head=IsotonicOneVsRest(), strength=0.1)
        assert NeuralClamping(head=VectorScaling(), strength=1.0).fit(network(), data()).delta.any()
