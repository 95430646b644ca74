"""What the registers of discrepancies share: checks by an entry's id, the places in the code they name, their cards."""

from transnormer_lib.studies.common.register.checks import Effect, Found, Register
from transnormer_lib.studies.common.register.places import Place, find

__all__ = ["Effect", "Found", "Place", "Register", "find"]
