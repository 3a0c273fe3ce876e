"""``calibrant demo``, without the minute that its work takes: what it leaves and says."""

import inspect
import re
from dataclasses import replace

from made_records import made_clamping, made_comparison, made_evaluation

from calibrant.cli import demo
from calibrant.report import clamping_page, comparison_page, evaluation_page


def test_it_ends_with_one_report_on_both_networks_and_the_line_that_opens_the_studio(calibrant, monkeypatch, tmp_path):
    asked = []

    def made(name, page):
        signature = inspect.signature(getattr(demo, name))

        def command(*files, **options):
            asked.append((name, signature.bind(*files, **options).arguments))
            return replace(page, charts=lambda: {"views": [], "methods": []})

        return command

    for name, page in (
        ("evaluate", evaluation_page(made_evaluation(), source="a.npz")),
        ("compare", comparison_page(made_comparison())),
        ("clamp", clamping_page(made_clamping())),
    ):
        monkeypatch.setattr(f"calibrant.cli.demo.{name}", made(name, page))
    out = tmp_path / "demo"

    def save(_console, folder, *_):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "test.npz").write_bytes(b"predictions")

    monkeypatch.setattr("calibrant.cli.demo._save_digits", save)
    monkeypatch.setattr("calibrant.cli.demo._save_resnet110", save)
    code, told, err = calibrant("demo", "--out", out, COLUMNS="400")
    assert code == 0, err
    assert [name for name, _ in asked] == ["evaluate", "compare", "evaluate", "compare", "clamp"]
    files = {name: asked[-1][1][name].name for name in ("data", "test", "out", "weights")}
    assert files == {
        "data": "digits-calibration-images.npz",
        "test": "digits-test-images.npz",
        "out": "clamped",
        "weights": "digits-weights.safetensors",
    }
    text = (out / "report.html").read_text()
    assert text.count("<article") == 5
    links = [re.findall(r">([^<]+)</a>", group) for group in re.findall(r"<p>[^<]+: (<a.*?)</p>", text)]
    assert links == [["evaluation", "methods"], ["evaluation", "methods", "Neural Clamping"]]
    assert f"calibrant compare {out}/resnet110/calibration.npz {out}/resnet110/test.npz</code>" in text
    assert "<p>test.npz: <code>sha256:" in text
    assert f"Open in a browser: {out}/report.html" in told
    assert f"calibrant serve {out}/resnet110/test.npz" in told
