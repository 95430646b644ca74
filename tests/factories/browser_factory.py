"""What the browser tests share: where the report is, and an open page with what it did."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
REPORT = CHECKOUT / "reports" / "quick"


@dataclass
class Visit:
    """An open page, with what it tried to load from elsewhere, its errors, and the dialogs that it opened."""

    page: Any
    left: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Assert that the page kept to itself."""
        assert (self.left, self.errors, self.dialogs) == ([], [], [])


Open = Callable[..., Visit]
