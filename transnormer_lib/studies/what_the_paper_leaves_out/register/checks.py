"""The register of TransNormer's discrepancies, which the files beside this one fill."""

from transnormer_lib.studies.common.register.checks import Effect, Found, Register

REGISTER = Register("transnormer")
check, names, run, run_all = REGISTER.check, REGISTER.names, REGISTER.run, REGISTER.run_all

__all__ = ["REGISTER", "Effect", "Found", "check", "names", "run", "run_all"]
