"""The executable register of discrepancies: one file of checks per subject, and the places in the code they name."""

from transnormer_lib.studies.what_the_paper_leaves_out.register import (
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
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, names, run
from transnormer_lib.studies.what_the_paper_leaves_out.register.places import Place, find

# Importing a file registers its checks.
MODULES = (sizes, training, norms, positions, attention, baselines, arena, listops, tables, speed, theory)

__all__ = ["MODULES", "Effect", "Found", "Place", "find", "names", "run"]
