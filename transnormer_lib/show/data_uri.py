"""A text as a ``data:`` address, which an attribute in double quotes can hold as it is."""

from urllib.parse import quote

from markupsafe import Markup

# What a browser and a parser of HTML take as it is inside double quotes; base64 would be a third longer.
_PLAIN = " !'()*+,-./:;=?@_~"


def data_uri(kind: str, text: str) -> Markup:
    """``text`` of a media type, as ``image/svg+xml``; ``urllib.parse.unquote`` of what follows the comma gives it back.

    Raises ValueError for a ``kind`` that is no media type.
    """
    if kind.count("/") != 1 or quote(kind, safe="/+;=-") != kind:
        raise ValueError(f"kind={kind!r}: must be a media type, as text/csv")
    return Markup(f"data:{kind},{quote(text, safe=_PLAIN)}")
