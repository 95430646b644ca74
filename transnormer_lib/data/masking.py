"""Which tokens a masked language model predicts, and what it sees in their place. Importable without torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MaskingConfig:
    """Shares; the defaults are BERT's (Devlin et al. 2019, Section 3.1)."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    selected: float = 0.15  # share of the tokens to predict
    masked: float = 0.8  # of the selected: share replaced by the mask
    random: float = 0.1  # of the selected: share replaced by any token of the vocabulary; the rest is kept
    # Select words, not tokens, each as a whole and with one fate for all its tokens (Cui et al. 2021). The text must
    # know where its words begin (``TextCorpus.word_starts``); of a word that a window cuts, the part inside counts.
    whole_words: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.selected <= 1.0:
            raise ValueError(f"selected={self.selected!r}: must be in (0, 1]")
        for name, share in (("masked", self.masked), ("random", self.random)):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name}={share!r}: must be in [0, 1]")
        if self.masked + self.random > 1.0:
            raise ValueError(f"random={self.random!r}: must be at most 1 - masked ({1.0 - self.masked})")
