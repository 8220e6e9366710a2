"""What PyInstaller asks for when it freezes a program that uses gzarr: ``hook-gzarr.py`` in this directory."""

from __future__ import annotations

from pathlib import Path


def hook_directories() -> list[str]:
    """Return the directories with hooks, for the entry point ``pyinstaller40``."""
    return [str(Path(__file__).parent)]
