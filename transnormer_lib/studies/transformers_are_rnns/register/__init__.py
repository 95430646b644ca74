"""The executable register of this paper's discrepancies: one file of checks per subject."""

from transnormer_lib.studies.transformers_are_rnns.register import (  # noqa: F401  importing a file registers its checks
    attention,
    complexity,
    images,
    speech,
    tables,
    theory,
    training,
)
from transnormer_lib.studies.transformers_are_rnns.register.checks import REGISTER, check, run_all

__all__ = ["REGISTER", "check", "run_all"]
