"""The callback of Lightning and metrics that a module logs, on a small network; in one process and in two."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from held_ports import held_port
from torch import distributed, multiprocessing, nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant import catalogue
from calibrant.calibrators import TemperatureScaling
from calibrant.errors import InputError
from calibrant.files import read_map_file
from calibrant.predictions import Predictions

pytest.importorskip("lightning", reason="lightning is not installed")
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger

from calibrant.integrations.lightning import CalibrationCallback, logits_and_labels

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
]


class Network(LightningModule):
    """Sharpened logits that the optimiser makes worse in every epoch."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def training_step(self, batch):
        return -self.scale * batch[0].mean().detach().abs().clamp(min=1)

    def validation_step(self, batch):
        return self.scale * batch[0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Recorder(Logger):
    name, version = "recorder", 0

    def __init__(self):
        super().__init__()
        self.numbers, self.figures = {}, {}

    def log_metrics(self, metrics, step=None):  # noqa: ARG002
        self.numbers |= metrics

    def log_hyperparams(self, *_args, **_kwargs): ...

    @property
    def experiment(self):  # like that of TensorBoard
        return SimpleNamespace(add_figure=lambda name, figure, **_options: self.figures.update({name: figure}))


def data():
    torch.manual_seed(0)
    logits = torch.randn(200, 3)
    labels = torch.distributions.Categorical(logits=logits).sample()
    return DataLoader(TensorDataset(logits, labels), batch_size=64), logits, labels


def trained(tmp_path, callbacks, logger=False, network=None, **options):
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", logger=logger, callbacks=callbacks, default_root_dir=tmp_path,
        enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip
    network = network or Network()
    loader, logits, labels = data()
    trainer.fit(network, loader, loader)
    return trainer, network, logits, labels


def test_the_map_lies_beside_the_best_checkpoint_and_belongs_to_its_weights(tmp_path):
    callback, recorder = CalibrationCallback(metrics=("ece", "nll")), Recorder()
    checkpoint = ModelCheckpoint(tmp_path / "kept", monitor="val_nll", mode="min")
    trainer, network, logits, labels = trained(tmp_path, [callback, checkpoint], recorder)
    assert callback.path == Path(checkpoint.best_model_path).with_suffix(".map.safetensors")
    weights = torch.load(checkpoint.best_model_path, weights_only=True)["state_dict"]
    assert weights["scale"] < network.scale  # an earlier epoch was the best
    saved = read_map_file(callback.path)
    # Temperature scaling undoes the scale: of these weights, not of the last ones.
    again = TemperatureScaling().fit(Predictions.from_logits(weights["scale"] * logits, labels))
    assert float(saved.map.temperature) == pytest.approx(float(again.temperature), rel=1e-5)
    assert {"val_ece", "val_nll", "calibration/ece", "calibration/ece_low"} <= set(recorder.numbers)
    assert "calibration/reliability" in recorder.figures
    assert float(trainer.callback_metrics["val_nll"]) > 0


def test_without_checkpoints_the_map_of_the_last_epoch_is_kept(tmp_path):
    callback = CalibrationCallback("temperature")
    trained(tmp_path, [callback], enable_checkpointing=False)
    assert callback.path == tmp_path / "map.safetensors"
    assert callback.path.is_file()


def test_steps_that_return_no_logits_are_refused():
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    assert logits_and_labels({"logits": logits, "labels": labels}, None) == (logits, labels)
    assert logits_and_labels({"logits": logits}, {"labels": labels}) == (logits, labels)
    for outputs in (None, torch.tensor(1.0), {"loss": torch.tensor(1.0)}):
        with pytest.raises(InputError, match=r"validation_step must return logits \(n, k\)"):
            logits_and_labels(outputs, (logits, labels))


class Logging(Network):
    """Logs metrics of the catalogue in the manner of TorchMetrics."""

    def __init__(self):
        super().__init__()
        from calibrant.integrations.torchmetrics import CalibrantMetric, metric_collection

        self.ece, self.metrics = CalibrantMetric("ece"), metric_collection("nll", "auroc", prefix="all_")

    def validation_step(self, batch):
        logits = self.scale * batch[0]
        self.ece.update(logits, batch[1])
        self.metrics.update(logits, batch[1])
        self.log("val_ece", self.ece)
        self.log_dict(self.metrics)


def test_metrics_are_logged_by_the_module_and_begin_anew_in_every_epoch(tmp_path):
    recorder = Recorder()
    trainer, _, logits, labels = trained(tmp_path, [], recorder, network=Logging(), enable_checkpointing=False)
    # Weights of the last validation: those at the end.
    rows = Predictions.from_logits(trainer.lightning_module.scale.detach() * logits, labels)
    for name, metric in {"val_ece": "ece", "all_nll": "nll", "all_auroc": "auroc"}.items():
        assert float(trainer.callback_metrics[name]) == pytest.approx(catalogue.metrics[metric](rows), abs=1e-4)
        assert name in recorder.numbers


def _one_of_two(rank, port, folder):
    """Train as one of two processes that a launcher has started."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "NODE_RANK": "0"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "1"}
    callback = CalibrationCallback(metrics=("ece", "nll"))
    checkpoint = ModelCheckpoint(folder / "kept", monitor="val_nll", mode="min")
    trainer, *_ = trained(folder, [callback, checkpoint], devices=2, strategy="ddp")
    numbers = {name: float(value) for name, value in trainer.callback_metrics.items()}
    kept = {"numbers": numbers, "temperature": float(callback.fitted.temperature), "path": str(callback.path)}
    torch.save(kept, folder / f"{rank}.pt")


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="gloo is not available")
def test_two_processes_log_and_fit_on_the_samples_of_both(tmp_path):
    processes = multiprocessing.get_context("spawn")  # Lightning reads the GPU's random state, which no fork may do
    with held_port() as port:
        started = [processes.Process(target=_one_of_two, args=(rank, port, tmp_path)) for rank in (0, 1)]
        for process in started:
            process.start()
        for process in started:
            process.join(900)
    assert [process.exitcode for process in started] == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert first == second
    assert set(first["numbers"]) == {"val_ece", "val_nll"}
    _, logits, labels = data()
    (checkpoint,) = (tmp_path / "kept").glob("*.ckpt")
    scale = torch.load(checkpoint, weights_only=True)["state_dict"]["scale"]
    alone = TemperatureScaling().fit(Predictions.from_logits(scale * logits, labels))
    assert first["temperature"] == pytest.approx(float(alone.temperature), rel=1e-5)
    assert float(read_map_file(first["path"]).map.temperature) == pytest.approx(first["temperature"])
