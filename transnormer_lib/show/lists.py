"""Sentences as a list, displayed where the call stands: printed text would be gathered at the cell's first line."""

from collections.abc import Sequence
from html import escape


def show_list(sentences: Sequence[str]) -> None:
    """Display the sentences, escaped; nothing where there are none."""
    from IPython.display import display

    if sentences:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        display({"text/html": f"<ul>{items}</ul>", "text/plain": "\n".join(sentences)}, raw=True)
