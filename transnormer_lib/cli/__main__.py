"""``python -m transnormer_lib.cli``: the ``transnormer`` command."""

from transnormer_lib.cli import main

raise SystemExit(main())
