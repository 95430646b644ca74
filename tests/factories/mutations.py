"""Sound content with something wrong in it, drawn by hypothesis: plain values, and bytes."""

from typing import Any

from hypothesis import strategies as st

NUMBERS = [0, 1, -1, 2, 7, 64, 10**6, 10**9, 10**12, 2**63, 2**70, -(2**70), 0.0, 0.5, -0.5, 1e-300, 1e300]
NUMBERS += [float("inf"), float("-inf"), float("nan")]
TEXTS = ["", " ", "x", "quick", "transnormer", "softmax", "0", "null", "é", "\x00", "\u2028", "a" * 400, "a\nb", "../x"]
TEXTS += ["{{ x }}", "<script>alert(1)</script>", "$x$", "$\\frac{", "%s", "a: b", "2026-01-01"]
PIECES = [
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\n",
    b"\r",
    b"\t",
    b"[",
    b"{",
    b"}",
    b'"',
    b"'",
]
PIECES += [b": ", b"- ", b"&a ", b"*a", b"!!python/name:os.system ", b"<<: ", b"---\n", b"NaN", b"Infinity", b"1e999"]
PIECES += [b"2026-01-01 ", b"2026-13-45", b"!!int ", b"!!bool ", b"!!timestamp ", b"!!map ", b"!!set ", b"!!binary "]
PIECES += [b"[" * 300, b'{"a":' * 300, b"9" * 5000]
scalars = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.integers(-3, 40))
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["x", "id", "scale", ""]), inner, max_size=3)
    ),
    max_leaves=4,
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in plain values, the whole included."""
    found = [at]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths(inner, (*at, key))
    return found


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


@st.composite
def spoiled(draw: st.DrawFn, sound: Any, most: int = 2) -> Any:
    """Plain values with up to ``most`` changes: something replaced, left out, given twice or renamed."""
    value = copied(sound)
    for _ in range(draw(st.integers(0, most))):
        places = paths(value)
        if draw(st.booleans()):  # of the many places most are deep
            places = [place for place in places if len(place) <= 2]
        path = draw(st.sampled_from(places))
        if not path:
            continue
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        last, how = path[-1], draw(st.sampled_from(["replace", "replace", "leave out", "twice", "rename"]))
        if how == "replace":
            holder[last] = draw(junk)
        elif how == "leave out":
            del holder[last]
        elif isinstance(holder, list):
            holder.insert(last, copied(holder[last]))
        else:
            holder[draw(st.sampled_from(["x", "id", 3, None, True]))] = holder[last]
    return value


@st.composite
def broken(draw: st.DrawFn, sound: bytes) -> bytes:
    """Bytes with up to three changes: cut, flipped, overwritten, repeated, or with something put in."""
    content = bytearray(sound)
    for _ in range(draw(st.integers(1, 3))):
        size = len(content)
        start = draw(st.integers(0, size))
        end = min(size, start + draw(st.sampled_from([0, 1, 2, 8, 100, size])))
        how = draw(st.sampled_from(["cut", "flip", "put", "repeat", "only"]))
        if how == "cut":
            del content[start:end]
        elif how == "flip" and start < size:
            content[start] ^= 1 << draw(st.integers(0, 7))
        elif how == "put":
            content[start:start] = draw(st.sampled_from(PIECES))
        elif how == "repeat":
            content[start:start] = content[start:end]
        elif how == "only":
            del content[end:]
    return bytes(content)
