"""The words of a figure, and that they stay inside it."""

from matplotlib.text import Text

__all__ = ["check_words", "drawn_texts", "drawn_words"]


def drawn_words(figure):
    """What is written, the numbers of ticks too."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


def drawn_texts(figure):
    """All but the numbers of ticks, some of which are beyond the limits and not drawn."""
    figure.draw_without_rendering()
    numbers = {id(label) for ax in figure.axes for axis in (ax.xaxis, ax.yaxis) for label in axis.get_ticklabels()}
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and id(text) not in numbers]


def check_words(figure):
    """Inside the figure, and none of a number that does not exist."""
    texts = drawn_texts(figure)
    assert texts
    for text in texts:
        assert "nan" not in text.get_text()
        box = text.get_window_extent()
        assert -1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert -1 <= box.y0 <= box.y1 <= figure.bbox.y1 + 1, text.get_text()
