"""The one Jinja environment: every piece of HTML that the companion shows comes from a template.

A template is named by its path in the package, ``show/templates/claims.html.j2``, so that report and studies keep
theirs beside their code. Everything that a template shows is escaped unless it is Markup.
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from transnormer_lib.ledger.verdicts import FAILURES, SUCCESSES
from transnormer_lib.show.formulas import text_with_math

PACKAGE = Path(__file__).parents[1]


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PACKAGE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
    )
    environment.filters["math"] = text_with_math
    environment.globals.update(successes=SUCCESSES, failures=FAILURES, css=css)
    return environment


@cache
def css(path: str) -> Markup:
    """A style sheet of the package, for a ``<style>`` element."""
    return Markup((PACKAGE / path).read_text(encoding="utf-8").strip())


def render(template: str, /, **context: Any) -> Markup:
    """A template, by its path in the package, filled with ``context``."""
    return Markup(_environment().get_template(template).render(**context).strip())


@cache
def output_styles() -> Markup:
    """The style element that outputs carry so that they look right in JupyterLab; a page holds it once."""
    return render("show/templates/styles.html.j2")
