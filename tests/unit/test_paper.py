"""Citations as people and as BibTeX read them."""

import re

import pytest

from calibrant.catalogue import find_papers
from calibrant.cli.listing import _index, other_papers
from calibrant.errors import UnknownNameError
from calibrant.paper import Paper


@pytest.mark.parametrize(
    ("authors", "written"),
    [
        ("Brier", "Brier"),
        ("Guo et al.", "Guo and others"),  # a paper of a plugin: its authors are not in the list
        ("Zadrozny & Elkan", "Zadrozny and Elkan"),
        ("Vovk, Petej & Fedorova", "Vovk and Petej and Fedorova"),
        ("Vovk, Petej, & Fedorova", "Vovk and Petej and Fedorova"),
        ("Nguyen & O'Connor et al.", "Nguyen and O'Connor and others"),
    ],
)
def test_bibtex_has_and_between_authors(authors, written):
    entry = Paper(authors, 2015, "A Title", "arXiv:1511.00214").bibtex
    assert f"  author = {{{written}}}," in entry
    assert "  eprint = {1511.00214},\n  archiveprefix = {arXiv}," in entry


def test_every_paper_of_the_library_is_cited_with_all_its_authors():
    papers = {Paper(**fields) for listed in _index()["papers"].values() for fields in listed}
    papers |= set(filter(None, other_papers().values()))
    assert len(papers) > 60
    for paper in papers:
        authors = re.search(r"author = \{(.*)\}", paper.bibtex)[1].split(" and ")
        surnames = [name.split(",")[0] if "," in name else name.split()[-1] for name in authors]
        named = re.split(", | & ", paper.authors.removesuffix(" et al."))
        assert all(" " in name for name in authors), paper
        assert surnames[: len(named)] == named, paper
        assert len(authors) > 2 if paper.authors.endswith(" et al.") else len(authors) == len(named), paper


def test_papers_have_their_venues_but_preprints_and_data_sets():
    papers = {Paper(**fields) for listed in _index()["papers"].values() for fields in listed}
    without = {paper.authors for paper in papers if paper.bibtex.startswith("@misc{")}
    assert without == {"Alpaydin & Kaynak", "Berta et al.", "Błasiok & Nakkiran", "Joo & Chung", "Le & Yang",
                       "Singh et al.", "Xiao, Rasul & Vollgraf"}  # fmt: skip
    (guo,) = find_papers("ece")
    assert guo.bibtex.startswith("@inproceedings{guo2017on,")
    assert "booktitle = {International Conference on Machine Learning}" in guo.bibtex


def test_a_paper_in_print_has_no_address_but_a_place():
    paper = Paper("Kull et al.", 2017, "Beta calibration", "A printed volume")
    assert (paper.url, paper.link) == ("", "Beta calibration, A printed volume")
    assert "howpublished = {A printed volume}" in paper.bibtex
    assert "url" not in paper.bibtex


def test_a_chain_has_the_papers_of_its_steps_each_once():
    steps = find_papers("temperature(criterion=focal)+temperature+isotonic")
    assert [paper.short for paper in steps] == ["Guo et al. (2017)", "Zadrozny & Elkan (2002)"]
    assert find_papers("temperature(criterion=focal)") == find_papers("temperature")


def test_the_error_by_proximity_is_known():
    (paper,) = find_papers("piece")
    assert (paper.short, paper.identifier, paper.where) == ("Xiong et al. (2023)", "arXiv:2306.04590", "eq. 4")


@pytest.mark.parametrize("text", ["temperatur", "temperatur+isotonic", "temperatur(criterion=focal)"])
def test_a_name_that_is_not_known_is_refused_with_the_closest(text):
    with pytest.raises(UnknownNameError, match=r"Did you mean temperature\?"):
        find_papers(text)
