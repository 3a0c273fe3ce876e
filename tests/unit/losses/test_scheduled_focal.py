import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.base import loss_settings
from calibrant.losses.focal import FocalLoss, ScheduledFocalLoss

LOGITS = 2 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(4, (50,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("epoch", "gamma"), [(0, 5.0), (99, 5.0), (100, 3.0), (249, 3.0), (250, 1.0), (999, 1.0)])
def test_each_epoch_has_the_gamma_of_its_stretch(epoch, gamma):
    loss = ScheduledFocalLoss()
    loss.begin_epoch(epoch)
    # A power whose exponent is a tensor is worked out by another routine than one that is a plain number: they differ
    # by a few units in the last place of each sample, and all samples are positive.
    torch.testing.assert_close(
        loss(LOGITS, LABELS), FocalLoss(gamma=gamma)(LOGITS, LABELS), rtol=8 * torch.finfo(LOGITS.dtype).eps, atol=0
    )


def test_before_any_epoch_it_is_the_first_gamma():
    loss = ScheduledFocalLoss()
    first = loss(LOGITS, LABELS)
    loss.begin_epoch(0)
    assert torch.equal(first, loss(LOGITS, LABELS))


def test_gamma_is_written_in_place_so_that_a_captured_step_sees_it():
    loss = ScheduledFocalLoss()
    place = loss.gamma.data_ptr()
    loss.begin_epoch(120)
    assert (loss.gamma.data_ptr(), float(loss.gamma), loss.gamma.shape) == (place, 3.0, ())


def test_a_compiled_step_sees_the_new_gamma_without_being_compiled_again():
    loss = ScheduledFocalLoss()
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    for epoch in (0, 100, 250):
        loss.begin_epoch(epoch)
        assert torch.allclose(compiled(LOGITS, LABELS), loss(LOGITS, LABELS))
    assert len(graphs) == 1
    torch.compiler.reset()


def test_a_resumed_run_keeps_its_gamma():
    before, after = ScheduledFocalLoss(), ScheduledFocalLoss()
    before.begin_epoch(260)
    after.load_state_dict(before.state_dict())
    assert float(after.gamma) == 1.0


def test_a_last_gamma_of_zero_ends_in_the_cross_entropy_to_the_bit():
    loss = ScheduledFocalLoss(gammas=(2.0, 0.0), starts=(0, 3))
    loss.begin_epoch(3)
    assert torch.equal(loss(LOGITS, LABELS), F.cross_entropy(LOGITS, LABELS, reduction="none").mean())


def test_its_settings_are_its_options_and_not_its_state():
    loss = ScheduledFocalLoss(gammas=(2.0, 1.0), starts=(0, 3))
    loss.begin_epoch(5)
    assert loss_settings(loss) == {
        "loss": "focal_schedule", "gammas": [2.0, 1.0], "starts": [0, 3], "reduction": "mean", "ignore_index": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gammas": (5.0, 3.0)}, "gammas and starts must be as many; got 2 and 3"),
        ({"starts": (1, 100, 250)}, "starts must begin with 0 and rise; got"),
        ({"starts": (0, 250, 100)}, "starts must begin with 0 and rise; got"),
        ({"gammas": (), "starts": ()}, "starts must begin with 0 and rise; got"),
        ({"starts": (0, 1.5, 3)}, "each of starts must be a whole number; got 1.5"),
        ({"gammas": (5.0, 3.0, -1.0)}, "each of gammas must be at least 0"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        ScheduledFocalLoss(**options)


@pytest.mark.parametrize("epoch", [-1, 1.0, True])
def test_an_epoch_is_a_count(epoch):
    with pytest.raises(InputError, match="epoch must be"):
        ScheduledFocalLoss().begin_epoch(epoch)
