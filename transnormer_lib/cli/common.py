"""What the commands share: how they begin, a user's mistake, and the types of their arguments."""

import argparse
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transnormer_lib.project import Preset, Project


def take_up(options: argparse.Namespace) -> "tuple[Project, Preset, list[str]]":
    """The project, its preset, whose environment is now set, and the notebooks. Call it before torch is imported."""
    from transnormer_lib.project import find_project
    from transnormer_lib.report.signals import on_ending

    on_ending(signal.default_int_handler)
    project = find_project(options.root)
    preset, notebooks = project.preset(options.preset), project.select(options.only)
    os.environ.update(preset.environment)
    return project, preset, notebooks


def mistake(line: str) -> ValueError:
    """The error that ends a command with exit code 2 and this line."""
    from transnormer_lib.project import UserMistake

    return UserMistake(line)


def positive(text: str) -> int:
    """An argument that is a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 1")
    return int(text)
