"""The executable register of discrepancies: one file of checks per subject, and the places in the code they name."""

from transnormer_lib.studies.common.register.places import Place, find
from transnormer_lib.studies.what_the_paper_leaves_out.register import (  # noqa: F401  importing a file registers its checks
    arena,
    attention,
    baselines,
    listops,
    norms,
    positions,
    sizes,
    speed,
    tables,
    theory,
    training,
)
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, names, run, run_all

__all__ = ["Effect", "Found", "Place", "find", "names", "run", "run_all"]
