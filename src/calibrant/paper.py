"""The paper behind a metric, loss or calibrator, printed by ``calibrant cite``."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import final
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
