"""A frozen network computes no weight gradient, and comes back exactly as it was."""

import pytest
import torch
from torch import nn

from calibrant.errors import InputError
from calibrant.inference import frozen, is_training, warn_if_training
from calibrant.inference.network import is_exported


def network():
    """Every kind of state that could be lost: mixed modes, a frozen parameter, a gradient held, a shared weight."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Sequential(nn.Linear(4, 4)))
    model[3][0].weight = model[0].weight
    model.train()
    model[1].eval()
    model[0].bias.requires_grad_(False)
    model(torch.randn(5, 4)).sum().backward()
    return model


def state_of(model):
    return (
        [module.training for module in model.modules()],
        [parameter.requires_grad for parameter in model.parameters()],
        [None if parameter.grad is None else parameter.grad.tolist() for parameter in model.parameters()],
        {name: values.tolist() for name, values in model.state_dict().items()},
    )


def test_within_the_block_the_network_is_in_evaluation_mode_and_needs_no_gradient():
    model, inputs = network(), torch.randn(6, 4, requires_grad=True)
    expected = nn.Sequential(*model).eval()(inputs)
    model.train()
    with frozen(model):
        logits = model(inputs)
        (gradient,) = torch.autograd.grad(logits.sum(), inputs)
        assert not any(module.training for module in model.modules())
        assert not any(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(logits, expected)
    assert gradient.abs().sum() > 0


def test_no_weight_gradient_is_computed_by_a_backward_pass_within():
    model = network()
    before = state_of(model)
    with frozen(model):
        model(torch.randn(6, 4, requires_grad=True)).sum().backward()
    assert state_of(model) == before


@pytest.mark.parametrize("ending", [None, RuntimeError, KeyboardInterrupt])
def test_the_network_comes_back_as_it_was_however_the_block_ends(ending):
    model = network()
    before = state_of(model)

    def use():
        with frozen(model):
            model(torch.randn(6, 4))
            if ending is not None:
                raise ending

    if ending is None:
        use()
    else:
        with pytest.raises(ending):
            use()
    assert state_of(model) == before


def test_what_the_block_itself_changes_is_put_back_too():
    model = network()
    before = state_of(model)
    with frozen(model):
        model.train()
        for parameter in model.parameters():
            parameter.requires_grad_(True)
    assert state_of(model) == before


def test_a_block_within_a_block_leaves_the_outer_one_frozen():
    model = network()
    before = state_of(model)
    with frozen(model):
        with frozen(model):
            pass
        assert not any(module.training for module in model.modules())
        assert not any(parameter.requires_grad for parameter in model.parameters())
    assert state_of(model) == before


def test_a_module_whose_eval_does_more_is_not_made_to_do_it():
    class Merging(nn.Linear):
        def train(self, mode=True):
            if not mode:
                self.weight.data.zero_()
            return super().train(mode)

    model = nn.Sequential(Merging(2, 2))
    weight = model[0].weight.detach().clone()
    with frozen(model):
        assert torch.equal(model[0].weight, weight)
    assert torch.equal(model[0].weight, weight)


class RefusingModes(nn.Module):
    """As the module of an exported program: it has no train() and eval()."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def train(self, mode=True):
        raise NotImplementedError(mode)

    def eval(self):
        raise NotImplementedError


def test_a_module_that_refuses_eval_is_frozen_all_the_same():
    model = RefusingModes()
    with frozen(model):
        assert not model.linear.training
        assert not model.linear.weight.requires_grad
    assert model.linear.training
    assert model.linear.weight.requires_grad


@pytest.mark.parametrize("thing", [torch.sin, None, nn.Linear])
def test_what_is_no_network_is_refused(thing):
    with pytest.raises(InputError, match=r"model must be an nn\.Module; got .*Wrap a function"), frozen(thing):
        pass


def exported():
    batch = torch.export.Dim("n")
    return torch.export.export(nn.Linear(4, 3).eval(), (torch.rand(2, 4),), dynamic_shapes=({0: batch},)).module()


def test_an_exported_network_is_in_no_training_mode_whatever_its_flag_says():
    model = exported()
    assert model.training
    assert is_exported(model)
    assert not is_training(model)
    warn_if_training(model)  # a warning would be an error
    for other in (nn.Linear(4, 3), torch.fx.symbolic_trace(nn.Linear(4, 3))):
        assert not is_exported(other)
        assert is_training(other)
        assert not is_training(other.eval())


def test_within_the_block_a_gradient_can_be_had_also_under_inference_mode():
    model = network()
    with torch.inference_mode():
        with frozen(model), torch.enable_grad():
            inputs = torch.randn(6, 4, requires_grad=True)
            (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs)
        assert torch.is_inference_mode_enabled()
    assert gradient.abs().sum() > 0


def test_whether_gradients_are_taken_is_left_to_the_caller():
    for wanted in (True, False):
        with torch.set_grad_enabled(wanted), frozen(nn.Linear(4, 3)):
            assert torch.is_grad_enabled() == wanted


def test_weights_made_under_inference_mode_are_refused_and_left_as_they_were():
    with torch.inference_mode():
        model = nn.Linear(4, 3)
    with (
        pytest.raises(InputError, match=r"made under torch.inference_mode.*Make the network outside of it"),
        frozen(model),
    ):
        pass
    assert model.weight.requires_grad


def test_lazy_layers_without_weights_are_refused():
    with pytest.raises(InputError, match="lazy layers must run on a batch once"), frozen(nn.LazyLinear(2)):
        pass
