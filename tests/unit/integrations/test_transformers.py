"""The doors to Hugging Face: the Trainer, and models that return calibrated logits in their own output."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from calibrant.errors import InputError
from calibrant.files import load_map
from calibrant.maps import Scale

pytest.importorskip("transformers", reason="transformers is not installed")
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from calibrant.integrations.transformers import Calibration, attach_map, compute_metrics, predictions_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers, about its own code


def network(n_labels=3):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        num_labels=n_labels,
    )  # fmt: skip
    return BertForSequenceClassification(config).eval()


def samples(n=24):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 32, (n, 6), generator=generator)
    return [{"input_ids": row, "labels": row[0] % 3} for row in tokens]


def test_the_trainer_gets_metrics_and_a_map_beside_each_checkpoint(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    calibration = Calibration(metrics=("ece", "nll"))
    options = TrainingArguments(
        str(tmp_path / "out"), num_train_epochs=2, eval_strategy="epoch", save_strategy="epoch", use_cpu=True,
        report_to="none", logging_strategy="no", disable_tqdm=True, load_best_model_at_end=True,
        metric_for_best_model="nll", greater_is_better=False, learning_rate=1e-2,
    )  # fmt: skip
    trainer = Trainer(
        network(), options, train_dataset=samples(), eval_dataset=samples(), compute_metrics=calibration,
        callbacks=[calibration],
    )  # fmt: skip
    trainer.train()
    evaluated = [entry for entry in trainer.state.log_history if "eval_ece" in entry]
    assert len(evaluated) == 2
    checkpoints = sorted((tmp_path / "out").glob("checkpoint-*"))
    temperatures = {path.name: float(load_map(path / "map.safetensors").temperature) for path in checkpoints}
    assert len(temperatures) == 2
    best = trainer.state.best_model_checkpoint.split("/")[-1]
    assert float(load_map(tmp_path / "out" / "map.safetensors").temperature) == temperatures[best]


def test_a_model_with_a_map_keeps_its_output_and_works_in_a_pipeline():
    model, batch = network(), {"input_ids": torch.tensor([[3, 1, 4, 1, 5]])}
    with torch.no_grad():
        before = model(**batch).logits
        attached = attach_map(model, Scale(torch.tensor(2.0), n_classes=3))
        after = model(**batch)
        assert isinstance(after, SequenceClassifierOutput)
        assert torch.equal(after.logits, before / 2)
        assert torch.equal(after[0], after.logits)
        model.train()
        assert model(**batch).logits.shape == before.shape
        model.eval()

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "good": 2, "film": 3}, unk_token="[UNK]"))  # noqa: S106
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")  # noqa: S106
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None, device="cpu")
    given = {answer["label"]: answer["score"] for answer in classify(["good film"])[0]}
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([[2, 3]])).logits.softmax(1)[0]
    assert [given[f"LABEL_{i}"] for i in range(3)] == pytest.approx(wanted.tolist(), abs=1e-6)
    attached.remove()
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, before)


def test_tokens_that_do_not_count_are_left_out():
    logits, labels = np.zeros((2, 3, 4)), np.array([[0, 1, -100], [2, -100, -100]])
    assert len(predictions_of(logits, labels)) == 3
    assert len(predictions_of((logits, "hidden"), labels)) == 3
    evaluated = SimpleNamespace(predictions=logits, label_ids=labels)
    assert set(compute_metrics("ece", "nll")(evaluated)) == {"ece", "nll"}


def test_what_cannot_be_calibrated_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"got \(4, 3\) and \(4, 3\)"):
        predictions_of(np.zeros((4, 3)), np.zeros((4, 3)))
    with pytest.raises(InputError, match="one of the map's 5 classes; it has 3 labels"):
        attach_map(network(), Scale(torch.tensor(2.0), n_classes=5))
    model = network()
    attach_map(model, Scale(torch.tensor(2.0), n_classes=3))
    with pytest.raises(InputError, match=r"got tuple\. Pass return_dict=True"):
        model(input_ids=torch.tensor([[1, 2]]), return_dict=False)
    state = SimpleNamespace(is_world_process_zero=True, best_model_checkpoint=None, global_step=1)
    options = SimpleNamespace(output_dir=str(tmp_path), load_best_model_at_end=False)
    with pytest.raises(InputError, match="must be fitted on evaluated samples; there were none"):
        Calibration().on_train_end(options, state, None)
