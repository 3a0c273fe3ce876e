"""The numpy short cuts say the same as torch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.numerics.softmax import (
    Layout,
    argmax_rows,
    as_flags,
    columns_first,
    max_over_classes,
    positions_above,
    run_ends,
    sort_in_place,
)

many = settings(max_examples=60)
DTYPES = [torch.float32, torch.float64]


@st.composite
def tables(draw):
    """Numbers with many ties, also for the largest of a sample, of either sign."""
    n, k = draw(st.integers(1, 50)), draw(st.integers(2, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    spread = draw(st.sampled_from([1, 3, 1000]))
    values = torch.randint(-spread, spread + 1, (n, k), generator=generator).to(draw(st.sampled_from(DTYPES)))
    return values / draw(st.sampled_from([1, 7]))


def turned(values):
    return columns_first(values, out=torch.empty(values.shape[::-1], dtype=values.dtype))


@given(values=tables())
@many
def test_argmax_takes_the_first_of_the_largest(values):
    expected = [row.index(max(row)) for row in values.tolist()]
    assert argmax_rows(values).tolist() == expected
    highest, first = max_over_classes(turned(values))
    assert first.tolist() == expected
    assert torch.equal(highest, values.amax(1))
    layout = Layout.of(values)
    block, memory = (layout.reuse(torch.full((values.numel(),), torch.nan, dtype=values.dtype)) for _ in range(2))
    highest, first = layout.largest(layout.lay_out(values, out=block), memory)
    assert first.tolist() == expected
    assert torch.equal(highest, values.amax(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_argmax_of_other_types_is_left_to_torch(dtype):
    values = torch.tensor([[1, 3, 2], [5, 4, 0]]).to(dtype)
    assert argmax_rows(values).tolist() == [1, 0]


@pytest.mark.parametrize("k", [2, 255])
def test_the_largest_of_few_may_be_the_last_class(k):
    columns = torch.zeros(k, 3)
    columns[k - 1, 1] = 1
    highest, first = max_over_classes(columns)
    assert first.tolist() == [0, k - 1, 0]
    assert highest.tolist() == [0, 1, 0]


@pytest.mark.parametrize("n", [1, 8191, 8192, 8193, 20_000])
def test_columns_first_is_the_transpose_laid_out_anew(n):
    values = torch.arange(n * 3, dtype=torch.float32).view(n, 3)
    columns = turned(values)
    assert columns.is_contiguous()
    assert torch.equal(columns, values.T)
    assert torch.equal(turned(values[::2]), values[::2].T)


@given(values=tables(), threshold=st.floats(-2, 2))
@many
def test_positions_above_are_those_torch_finds(values, threshold):
    limits = torch.full((len(values), 1), threshold, dtype=values.dtype)
    expected = (values > limits).flatten().nonzero().flatten()
    assert torch.equal(positions_above(values, limits), expected)
    assert torch.equal(positions_above(values, limits, as_flags(torch.full_like(values, torch.nan))), expected)


@given(values=tables())
@many
def test_runs_end_where_the_next_number_differs(values):
    rising = values.flatten().sort().values
    ends = run_ends(rising)
    assert torch.equal(rising[ends], rising.unique())
    assert int(ends[-1]) == len(rising) - 1
    assert run_ends(rising[:1]).tolist() == [0]


@given(values=tables())
@many
def test_sorting_gives_what_torch_gives(values):
    flat = values.flatten()
    expected = flat.sort().values
    assert torch.equal(sort_in_place(flat.clone()), expected)


@given(values=tables())
@many
def test_a_layout_finds_every_entry_and_its_way_back(values):
    layout = Layout.of(values)
    block = layout.lay_out(values, out=layout.reuse(torch.empty(values.numel(), dtype=values.dtype)))
    classes = torch.arange(layout.n) % layout.k
    places = layout.places(classes)
    assert torch.equal(block.view(-1)[places], values[torch.arange(layout.n), classes])
    rows, back = layout.of_places(places)
    assert rows.tolist() == list(range(layout.n))
    assert back.tolist() == classes.tolist()
    assert torch.equal(block.T if layout.transposed else block, values)
    sums = torch.empty(layout.n, dtype=values.dtype)
    layout.sum_classes(block, sums)
    assert torch.allclose(sums, values.sum(1), atol=1e-2 if values.dtype == torch.float32 else 1e-9)
    layout.sum_products(block, block, memory=torch.empty_like(block), out=sums)
    assert torch.allclose(sums, values.square().sum(1), rtol=1e-4)


def test_the_way_back_is_exact_for_the_largest_blocks():
    layout = Layout(n=1 << 20, k=64, transposed=False)
    places = torch.cat([torch.arange(row * 64, row * 64 + 64) for row in (0, 1, 12345, (1 << 20) - 1)])
    rows, classes = layout.of_places(places)
    assert rows.tolist() == (places // 64).tolist()
    assert classes.tolist() == (places % 64).tolist()
    odd = Layout(n=1, k=999_983, transposed=False)
    places = torch.tensor([0, 999_982, 999_983, 999_983 * 67 - 1, 999_983 * 67])
    rows, classes = odd.of_places(places)
    assert rows.tolist() == [0, 0, 1, 66, 67]
