"""The examples run, and what they return is what they promise."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from matplotlib import pyplot as plt
from torch.nn import functional as F

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = {"crl_in_own_loop", "hugging_face", "lightning_module", "meta_in_own_loop", "own_loop"}
# Lightning remarks on many cores and on an idle GPU, and asks torch in a way that a newer one warns of.
LIGHTNING_WARNINGS = ("ignore:.*does not have many workers", "ignore:GPU available but not used", "ignore:.*LeafSpec")


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed_lines(capsys):
    return capsys.readouterr().out.strip().splitlines()


def test_every_example_is_known_here_and_short():
    files = sorted(FOLDER.glob("*.py"))
    assert {path.stem for path in files} == NAMES
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 60, f"{path.name} is too long for an example"
        assert f"python examples/{path.name}" in text.partition('"""\n\n')[0], f"{path.name} must say how to run it"


def test_a_temperature_calibrates_what_focal_loss_and_mixup_leave(capsys):
    numbers = example("own_loop").main()
    assert numbers["accuracy"] > 0.93
    assert numbers["before"] > 0.1  # the two together make a network unsure of itself
    assert numbers["after"] < numbers["before"] / 2
    assert printed_lines(capsys)[0] == f"accuracy {numbers['accuracy']:.3f}"


def test_the_ranking_loss_remembers_every_sample_of_an_own_loop(capsys):
    numbers = example("crl_in_own_loop").main()
    assert numbers["accuracy"] > 0.93
    assert numbers["auroc"] > 0.9
    # Each sample counts once an epoch: never counted it would be 0, and counted twice it would be above 1.
    assert 0.6 < numbers["often"] < 1
    assert len(printed_lines(capsys)) == 2


def test_a_learned_loss_moves_its_gammas_in_an_own_loop(capsys):
    numbers = example("meta_in_own_loop").main()
    assert numbers["accuracy"] > 0.93
    assert numbers["ece"] < 0.15
    assert abs(numbers["gamma_mean"] - 1) > 0.05  # where it began
    assert numbers["gamma_clipped"] == 0
    assert printed_lines(capsys)[0] == f"accuracy {numbers['accuracy']:.3f}, ece {numbers['ece']:.3f}"


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("accelerate", reason="needs calibrant[hf]")
    return pytest.importorskip("transformers", reason="needs calibrant[hf]")


@pytest.fixture(scope="module")
def hugging_face(transformers):  # noqa: ARG001  # what the example imports
    return example("hugging_face")


@pytest.mark.filterwarnings(*LIGHTNING_WARNINGS)
def test_a_lightning_module_trains_and_its_loss_hears_of_the_epochs(capsys):
    pytest.importorskip("lightning", reason="needs calibrant[lightning]")
    numbers = example("lightning_module").main()
    assert numbers["accuracy"] > 0.9
    assert numbers["ece"] < 0.15
    assert numbers["gamma"] == 1  # 5 if begin_epoch was never called
    assert printed_lines(capsys)[-1] == "γ was 1 in the last epoch"


def test_a_hugging_face_network_learns_from_the_tokens_that_count(hugging_face, capsys):
    numbers = hugging_face.main()
    assert numbers["accuracy"] > 0.9
    assert numbers["ece"] < 0.15
    assert numbers["tokens"] == 56 * (5 + 6 + 7 + 8) // 4
    assert printed_lines(capsys)[-2] == "364 of 448 tokens count"


def test_the_token_loss_is_a_mean_over_the_tokens_that_count(hugging_face):
    logits, labels = torch.randn(2, 8, 10, generator=torch.manual_seed(0)), torch.arange(16).reshape(2, 8) % 10
    labels[1, 5:] = -100
    rows = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
    expected = ((1 - torch.exp(-rows)) ** 2 * rows).sum() / 13
    torch.testing.assert_close(hugging_face.token_loss(SimpleNamespace(logits=logits), labels), expected)


def test_accumulated_batches_move_the_weights_as_one_large_batch_does(hugging_face, transformers, tmp_path):
    rows, loss = hugging_face.lines(torch.arange(256)), hugging_face.token_loss
    # Lines are of unequal length, so two means of 8 samples are not one of 16.
    whole = weights_after(transformers, loss, rows, tmp_path, batch_size=16, accumulated=1)
    parts = weights_after(transformers, loss, rows, tmp_path, batch_size=8, accumulated=2)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)


def weights_after(transformers, loss, rows, folder, *, batch_size, accumulated):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, num_labels=10,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    options = transformers.TrainingArguments(
        str(folder), num_train_epochs=1, learning_rate=0.1, optim="sgd", per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulated, max_grad_norm=0, use_cpu=True, report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    model = transformers.BertForTokenClassification(config)
    transformers.Trainer(model, options, train_dataset=rows, compute_loss_func=loss).train()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def test_the_tour_leads_from_an_own_network_to_a_deployed_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((FOLDER / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "commit the notebook without outputs"
    names = {"__name__": "tour"}
    with torch.random.fork_rng():
        for number, cell in enumerate(code):
            exec(compile("".join(cell["source"]), f"tour.ipynb:{number}", "exec"), names)  # noqa: S102  # our own
    plt.close("all")
    nll, before, after, repaired = (names[name] for name in ("nll", "before", "after", "repaired"))
    assert nll(repaired) < 0.5 * nll(after) < 0.5 * nll(before)
    assert names["accuracy"](repaired) > names["accuracy"](before) + 0.1
    assert printed_lines(capsys)[-2:] == ["True", "True"]  # what was saved and exported gives the same
    assert {path.name for path in tmp_path.iterdir()} == {
        "temperature.safetensors", "clamped.safetensors", "clamped.pt2",
    }  # fmt: skip
