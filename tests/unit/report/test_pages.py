"""Pages of made-up records in every form, compared with tests/golden; and what holds for every page."""

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path, PurePath

import pytest
from made_records import (
    HOSTILE,
    made_clamping,
    made_comparison,
    made_diagnosis,
    made_differences,
    made_evaluation,
    made_large_diagnosis,
    made_two_classes,
)
from rich.cells import cell_len

from calibrant.errors import InputError
from calibrant.report import (
    Cell,
    Figure,
    Page,
    Section,
    Verdict,
    clamping_page,
    comparison_page,
    diagnosis_page,
    evaluation_page,
    page_of,
    show,
    to_html,
    to_json,
    to_latex,
    to_markdown,
    to_plain,
    write,
)
from calibrant.report.page import Origin, bounds_text, name_cell, table
from calibrant.report.terminal import to_terminal
from calibrant.text import without_middle

PAGES = {
    "evaluation": lambda: evaluation_page(
        made_evaluation(), source="test.csv", comparison=made_differences(), baseline="old.csv"
    ),
    "evaluation-calibrated": lambda: evaluation_page(made_evaluation(miscalibrated=False, zeros=False)),
    "clamping": lambda: clamping_page(
        made_clamping(), network="nets:build", calibration=PurePath("cal.npz"), test=PurePath("test.npz")
    ),
    "clamping-without-delta": lambda: clamping_page(made_clamping(helps=False)),
    "comparison": lambda: comparison_page(
        made_comparison(), calibration=PurePath("a/cal.csv"), test=PurePath("a/test.csv")
    ),
    "comparison-nothing-helps": lambda: comparison_page(made_comparison(helps=False)),
    "diagnosis": lambda: diagnosis_page(made_diagnosis(), source="runs"),
    "diagnosis-large": lambda: diagnosis_page(made_large_diagnosis(), source="runs"),
    "diagnosis-alone": lambda: diagnosis_page(made_diagnosis(seeds=(0,), alone=True)),
    "diagnosis-one-seed": lambda: diagnosis_page(made_diagnosis(seeds=(0,))),
    "evaluation-two-classes": lambda: evaluation_page(made_two_classes(), source="fraud.csv"),
    "evaluation-top-label": lambda: evaluation_page(made_evaluation(top_label=True), source="answers.csv"),
}


def html_without_style(page):
    """The HTML of a page, without the style sheet and its digest: those of the front end."""
    text = re.sub(r"<style>.*</style>", "<style></style>", to_html(page), flags=re.DOTALL)
    return re.sub(r"'sha256-[^']*'", "'sha256-…'", text)


FORMS = {
    "md": to_markdown,
    "brief-80.txt": lambda page: to_terminal(page, width=80).plain + "\n",
    "brief-120.txt": lambda page: to_terminal(page, width=120).plain + "\n",
    "full-80.txt": lambda page: to_terminal(page, width=80, full=True).plain + "\n",
    "full-120.txt": lambda page: to_terminal(page, width=120, full=True).plain + "\n",
    "html": html_without_style,
}
each_page = pytest.mark.parametrize("name", PAGES)
PLAIN = Verdict("All is well.", [], ["Do nothing."])


# Every form of one page of each record; of its variants what a person reads first.
REVIEWED = [(name, form) for name in PAGES for form in (FORMS if "-" not in name else ("md", "brief-80.txt"))]


@pytest.mark.parametrize(("name", "form"), REVIEWED)
def test_a_page_is_what_was_reviewed(golden, name, form):
    golden(f"{name}.{form}", FORMS[form](PAGES[name]()))


def keys_of(value):
    """The keys of plain data, those of a list's first record standing for all."""
    if isinstance(value, dict):
        return {key: keys_of(item) for key, item in value.items()}
    return [keys_of(value[0])] if isinstance(value, list) and value else type(value).__name__


@pytest.mark.parametrize("name", ["evaluation", "evaluation-two-classes", "comparison", "clamping", "diagnosis-large"])
def test_json_has_the_keys_that_were_reviewed(golden, name):
    document = json.loads(to_json(PAGES[name]()))
    golden(f"{name}.keys.json", json.dumps(keys_of(document), indent=1, ensure_ascii=False) + "\n")


def words_of(page, *, full):
    """All words that a terminal must show."""
    is_all = full or page.brief_findings is None
    yield from page.verdict.findings if is_all else page.brief_findings
    yield from page.notes if full or page.brief_notes is None else page.brief_notes
    yield from [page.heading, page.facts, page.verdict.headline, *page.verdict.next_steps]
    for section in page.sections if full else page.brief:
        yield from [section.title, section.legend, *section.items]
        for shown in section.tables:
            yield shown.title
            yield from (column.heading for column in shown.columns)
            yield from (cell.text for row in shown.rows for cell in row)


@each_page
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_terminal_of_any_width_shows_every_word_whole(name, width, full):
    page = PAGES[name]()
    shown = to_terminal(page, width=width, full=full).plain
    # A command stays in one piece, to be copied.
    lines = [line for line in shown.splitlines() if line.strip() not in page.commands]
    assert max(map(cell_len, lines)) <= width
    known = set(re.findall(r"\S+", shown))
    joined = "".join(shown.split())  # where a long word is broken after a sign, its parts may be lines apart
    for text in words_of(page, full=full):
        for word in text.split():
            assert word in known or word in joined or all(part in shown for part in re.findall(r"\w+", word)), word


def test_a_table_that_is_too_wide_continues_below_with_the_names_of_its_rows():
    wide = table(["method", *(f"number {i}" for i in range(12))], [[name, *["0.1234567"] * 12] for name in ("a", "b")])
    shown = to_terminal(Page("Wide", "", PLAIN, sections=(Section("", (wide,)),)), width=60, full=True).plain
    assert shown.count("0.1234567") == 24
    assert sum(line.startswith("a ") for line in shown.splitlines()) > 1
    assert max(map(len, shown.splitlines())) <= 60


def test_columns_without_an_entry_are_left_out():
    shown = table(["method", "value", "floor"], [["a", "1", ""], ["b", "2", ""]])
    assert [column.heading for column in shown.columns] == ["method", "value"]


def test_the_sides_of_cells_are_shown_by_a_sign_and_not_by_colour_alone():
    rows = [["a", Cell("1.0", "better", "▲")], ["b", Cell("2.0", "worse", "▼")]]
    page = Page("Sides", "", PLAIN, sections=(Section("", (table(["", "value"], rows),)),))
    for text in (to_terminal(page, full=True).plain, to_markdown(page), to_html(page)):
        assert "▲" in text
        assert "▼" in text


class Tags(HTMLParser):
    """Tags of a document, and what stands inside scripts and links."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href"}]


@pytest.fixture
def hostile():
    """A page with a hostile name wherever a name can stand."""
    verdict = Verdict(HOSTILE, [HOSTILE], [HOSTILE])
    shown = table([HOSTILE, HOSTILE], [[Cell(HOSTILE, code=True), Cell(HOSTILE, "better", "▲")]], title=HOSTILE)
    section = Section(HOSTILE, (shown,), (HOSTILE,), HOSTILE)
    return Page(
        HOSTILE, HOSTILE, verdict, HOSTILE, brief=(section,), full_hint=HOSTILE, sections=(section,), notes=(HOSTILE,),
        settings=HOSTILE, footer=HOSTILE, commands=(HOSTILE,), figures=(Figure(HOSTILE, content=b"x"),),
        data=lambda: {"name": HOSTILE},
    )  # fmt: skip


def test_a_hostile_name_is_text_in_html(hostile):
    page = to_html(hostile)
    parsed = Tags()
    parsed.feed(page)
    assert "script" not in parsed.tags
    assert "a" not in parsed.tags
    assert all(address.startswith("data:image/png;base64,") for address in parsed.addresses)
    assert "\x1b" not in page
    assert "<script" not in page


def test_a_hostile_name_is_text_in_markdown(hostile):
    page = to_markdown(hostile)
    assert "\x1b" not in page
    code = re.compile(r"(`+).*?\1")
    assert "\n# `a`" not in page
    assert all("<script" not in re.sub(r"\\<", "", code.sub("", line)) for line in page.splitlines())


@pytest.mark.parametrize("full", [False, True])
def test_a_hostile_name_does_not_act_on_a_terminal(hostile, full):
    assert "\x1b" not in to_terminal(hostile, full=full).plain


def test_json_keeps_names_as_they_are(hostile):
    assert json.loads(to_json(hostile))["name"] == HOSTILE


def test_an_html_page_stands_alone(tmp_path):
    page = replace(PAGES["evaluation"](), figures=(Figure("reliability", content=b"png"),))
    text = write(page, tmp_path / "r.html").read_text()
    parsed = Tags()
    parsed.feed(text)
    assert parsed.addresses == ["data:image/png;base64,cG5n"]
    assert "url(" not in text
    assert "default-src 'none'" in text
    assert not parsed.tags & {"script", "link", "iframe", "object", "form"}


def test_no_line_ends_within_an_option_of_a_command(hostile):
    command = "calibrant fit platt a-b.csv --probs --class-names 'a--b' -o map.safetensors"
    page = to_html(replace(hostile, commands=(command,)))
    shown = re.search(r'<p class="command"><code>(calibrant fit.*?)</code>', page)[1]
    assert re.findall(r'<span class="option">(.*?)</span>', shown) == ["--probs", "--class-names", "-o"]
    assert unescape(re.sub("<[^>]*>", "", shown)) == command  # what is copied


def test_main_numbers_are_a_heading_where_the_first_section_has_none():
    page = PAGES["evaluation"]()
    assert "<h2>Main numbers</h2>" in to_html(page)
    named = replace(page, brief=(Section("Over time", page.brief[0].tables),))
    assert "<h2>Main numbers</h2>" not in to_html(named)


def test_a_handful_of_zeros_that_change_no_number_are_not_a_finding():
    evaluation = made_evaluation()
    for cells, labels, is_shown in ((8, 0, False), (8, 2, True), (800, 0, True)):
        zeros = evaluation.zeros._replace(cells=cells, of_cells=80_000, floored_labels=labels)
        findings = evaluation_page(replace(evaluation, zeros=zeros)).verdict.findings
        assert any("of the probabilities are 0" in line for line in findings) is is_shown


def test_the_form_of_a_file_is_that_of_its_ending_unless_it_is_given(tmp_path):
    page = PAGES["evaluation"]()
    assert json.loads(write(page, tmp_path / "a.json").read_text())["schema"] == "calibrant.evaluation/1"
    assert write(page, tmp_path / "a.md").read_text() == to_markdown(page)
    assert write(page, tmp_path / "a.tex").read_text() == to_latex(page)
    assert write(page, tmp_path / "summary", form="markdown").read_text() == to_markdown(page)
    with pytest.raises(InputError, match="must end in"):
        write(page, tmp_path / "a.txt")


@pytest.mark.parametrize("name", PAGES)
def test_every_table_of_a_page_is_one_of_latex(name):
    page = PAGES[name]()
    text = to_latex(page)
    found = re.findall(
        r"\\begin\{tabular\}\{([lr]+)\}\n\\toprule\n(.*?)\\bottomrule\n\\end\{tabular\}", text, re.DOTALL
    )
    tables = [one for section in page.sections for one in section.tables]
    assert len(tables) == len(found) == text.count(r"\begin{table}") == len(set(re.findall(r"\\label\{.*\}", text)))
    assert text.count(r"\resizebox{") == len(tables)
    assert f"% {page.conditions}\n" in text
    for one, (columns, body) in zip(tables, found, strict=True):
        rows = [line for line in body.splitlines() if line != r"\midrule"]
        assert len(rows) == len(one.rows) + 1
        assert all(row.endswith(r" \\") and len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1 for row in rows)
    # Besides letters, all that pdflatex has no character for is a command.
    shown = "".join(line for line in text.splitlines() if not line.startswith("% "))
    assert not set(shown) - set(map(chr, range(32, 127))) - set("·“”–")


def test_marks_of_latex_in_a_name_are_text():
    rows = [[r"a_b & 50 % of #1 ~ {x}^2 \input $y$", "-0.5 … 1e-3"], ["[c]", Cell("2", bold=True, mark="▲")]]
    page = replace(
        PAGES["evaluation"](), sections=(Section("By x_y?", (table(["100 % <", "value"], rows),), legend="A."),)
    )
    text = to_latex(page)
    name = r"a\_b \& 50 \% of \#1 \textasciitilde{} \{x\}\textasciicircum{}2 \textbackslash{}input \$y\$"
    assert "100 \\% $<$ & value \\\\\n" in text
    assert rf"{name} & $-$0.5 $\ldots$ 1e-3 \\" in text
    assert "{[}c] & \\textbf{2} $\\blacktriangle$ \\\\\n" in text
    assert r"\caption{By x\_y? A.}" in text
    assert r"\label{tab:by-x-y-1}" in text


def test_show_prints_the_brief_form_unless_all_is_asked_for(capsys):
    page = PAGES["evaluation"]()
    show(page)
    brief = capsys.readouterr().out
    show(page, full=True)
    full = capsys.readouterr().out
    assert "--full" in brief
    assert "ece_l1_debiased" not in brief
    assert "ece_l1_debiased" in full


def test_plain_data_has_neither_nan_nor_infinity():
    assert to_plain({"a": float("nan"), "b": (float("inf"), 1.5), "c": None}) == {
        "a": None,
        "b": [None, 1.5],
        "c": None,
    }
    with pytest.raises(TypeError, match="object"):
        to_plain(object())


@pytest.mark.parametrize(("record", "word"), [(made_evaluation(), "overconfident"), (made_comparison(), "Use sms")])
def test_a_notebook_shows_a_record_as_its_page(record, word):
    shown = record._repr_html_()
    assert shown.startswith('<article class="calibrant">')
    assert word in shown
    assert record.to_markdown() == to_markdown(page_of(record))
    assert word in repr(record)
    assert "\n" not in repr(record)
    assert len(repr(record)) < 300


def test_an_evaluation_becomes_a_frame_of_a_row_for_every_metric():
    pytest.importorskip("pandas")
    evaluation = made_evaluation()
    frame = evaluation.to_frame().set_index("metric")
    assert list(frame.index) == list(evaluation.metrics)
    assert frame.loc["ece", "value"] == evaluation.metrics["ece"].value
    assert list(frame.columns) == ["family", "value", "low", "high", "floor", "p"]


def test_a_comparison_becomes_a_frame_of_a_row_for_every_method():
    pytest.importorskip("pandas")
    frame = made_comparison().to_frame().set_index("method")
    assert list(frame.index) == [method.name for method in made_comparison().methods]
    assert frame.loc["sms", "nll"] == 0.6812
    assert frame.loc["sms", "nll_low"] < 0.6812 < frame.loc["sms", "nll_high"]
    assert frame.loc["vector", "failure"] == "the samples are separable."
    assert list(frame.index[frame["recommended"]]) == ["sms"]


def test_a_diagnosis_becomes_a_frame_of_a_row_for_every_candidate_and_map():
    pytest.importorskip("pandas")
    diagnosis = made_diagnosis()
    frame = diagnosis.to_frame().set_index(["candidate", "map"])
    assert list(frame.index) == [(one.name, name) for one in diagnosis.candidates for name in diagnosis.maps]
    of_second, of_maps = diagnosis.calibratability[1], diagnosis.refinement[1]
    row = frame.loc[of_second.candidate, "temperature"]
    assert (row["ece"], row["ece_std"]) == (of_second.ece["temperature"].mean, of_second.ece["temperature"].std)
    assert row["ece_difference_low"] == of_second.differences["temperature"].low
    assert row["auroc"] == next(one.metrics["auroc"].mean for one in of_maps.rows if one.map == "temperature")
    assert frame.loc[diagnosis.baseline, "ece_difference"].isna().all()
    assert diagnosis.to_markdown() == to_markdown(diagnosis_page(diagnosis))
    assert repr(diagnosis).startswith("Diagnosis(")


def test_a_frame_without_pandas_is_refused_with_the_cure(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        made_evaluation().to_frame()


def test_a_record_without_a_page_is_refused():
    with pytest.raises(InputError, match="Evaluation"):
        page_of(object())


def test_every_file_has_its_digest_also_if_folders_and_names_are_the_same(tmp_path):
    paths = [tmp_path / name for name in ("one/out/test.npz", "two/out/test.npz", "cal.npz")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(path))
    digests = Origin.of("calibrant compare", [*paths, paths[0], Path(tmp_path)]).digests
    assert list(digests) == ["one/out/test.npz", "two/out/test.npz", "cal.npz"]
    assert len(set(digests.values())) == 3


def test_long_names_in_a_table_keep_the_part_in_which_they_differ():
    names = [f"a very long name of the {word} class, as databases have it" for word in ("first", "second")]
    shown = table(["class"], [[name_cell(name)] for name in [*names, "short", names[0][:41]]]).rows
    first, second, *others = (row[0].text for row in shown)
    assert "first" in first
    assert "second" in second
    assert max(map(len, (first, second))) <= 40
    assert others == ["short", without_middle(names[0][:41], 40)]
    assert [row[0].whole for row in shown][:2] == names


def test_a_difference_that_rounds_to_zero_has_one_sign():
    assert bounds_text(-1e-9, 1e-9) == "+0.0000 … +0.0000"
