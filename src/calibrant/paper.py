"""The paper behind a metric, loss or calibrator, printed by ``calibrant cite``."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, final
from urllib.parse import quote

_REFERENCES = Path(__file__).parent / "references.json"  # all authors, and where it was published, by identifier
_KINDS = {"journal": "article", "booktitle": "inproceedings", "institution": "techreport", "publisher": "book"}


@final
@dataclass(frozen=True)
class Paper:
    """A citation, and the place in it that defines the method."""

    authors: str
    year: int
    title: str
    identifier: str
    where: str = ""

    def at(self, where: str) -> Self:
        """Return the same paper with another place in it."""
        return replace(self, where=where)

    @property
    def short(self) -> str:
        """Authors and year, as in running text."""
        return f"{self.authors} ({self.year})"

    @property
    def url(self) -> str:
        """URL of the identifier; empty for one that is printed only."""
        if self.identifier.startswith("https:"):
            return self.identifier
        scheme, _, rest = self.identifier.partition(":")
        address = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}.get(scheme)
        return "" if address is None else address + quote(rest, safe="/:;()")

    @property
    def link(self) -> str:
        """Title as a link in Markdown; without a URL, title and identifier."""
        return f"[{self.title}](<{self.url}>)" if self.url else f"{self.title}, {self.identifier}"

    @property
    def bibtex(self) -> str:
        """BibTeX entry."""
        first_author = re.split(r"[ ,&]", self.authors)[0].lower()
        first_word = re.sub(r"\W", "", self.title.split()[0]).lower()
        known: dict[str, dict[str, str]] = json.loads(_REFERENCES.read_text(encoding="utf-8"))
        surnames = re.sub(r",?\s*&\s*|,\s*", " and ", self.authors.replace(" et al.", " & others"))
        fields = {"title": self.title, "author": surnames, "year": str(self.year), **known.get(self.identifier, {})}
        scheme, _, number = self.identifier.partition(":")
        if scheme in {"arXiv", "doi"}:
            fields |= {"doi": number} if scheme == "doi" else {"eprint": number, "archiveprefix": scheme}
        kind = next((kind for field, kind in _KINDS.items() if field in fields), "misc")
        fields |= {"url": self.url} if self.url else {"howpublished": self.identifier} if kind == "misc" else {}
        body = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
        return f"@{kind}{{{first_author}{self.year}{first_word},\n{body}\n}}"

    def __str__(self) -> str:
        place = f", {self.where}" if self.where else ""
        return f"{self.short}, {self.title}, {self.identifier}{place}"


# Papers behind methods of several modules.
BRIER = Paper("Brier", 1950, "Verification of Forecasts Expressed in Terms of Probability",
              "doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2")  # fmt: skip
CORBIERE = Paper("Corbière et al.", 2019, "Addressing Failure Prediction by Learning Model Confidence",
                 "arXiv:1910.04851")  # fmt: skip
GUO = Paper("Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599")
GUPTA = Paper("Gupta et al.", 2021, "Calibration of Neural Networks using Splines", "arXiv:2006.12800")
HE = Paper("He et al.", 2016, "Deep Residual Learning for Image Recognition", "arXiv:1512.03385")
KARANDIKAR = Paper("Karandikar et al.", 2021, "Soft Calibration Objectives for Neural Networks", "arXiv:2108.00106")
KUMAR = Paper("Kumar et al.", 2019, "Verified Uncertainty Calibration", "arXiv:1909.10155")
KUMAR_18 = Paper("Kumar et al.", 2018, "Trainable Calibration Measures for Neural Networks from Kernel Mean "
                 "Embeddings", "https://proceedings.mlr.press/v80/kumar18a.html")  # fmt: skip
NAEINI = Paper("Naeini et al.", 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning",
               "doi:10.1609/aaai.v29i1.9602")  # fmt: skip
TANG = Paper("Tang et al.", 2024, "Neural Clamping: Joint Input Perturbation and Temperature Scaling for Neural "
             "Network Calibration", "arXiv:2209.11604")  # fmt: skip
WANG = Paper("Wang, Feng & Zhang", 2021, "Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of "
             "Overconfidence", "https://proceedings.neurips.cc/paper/2021/hash/61f3a6dbc9120ea78ef75544826c814e-"
             "Abstract.html")  # fmt: skip
WANG_24 = Paper("Wang & Golebiowski", 2024, "Towards Unbiased Calibration using Meta-Regularization",
                "arXiv:2303.15057", "eq. 5-7")  # fmt: skip
ZHANG = Paper("Zhang et al.", 2020, "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in "
              "Deep Learning", "arXiv:2003.07329")  # fmt: skip
