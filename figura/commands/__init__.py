"""The commands of `figura`, a module or a package each, which `figura.command` lists."""

import argparse


def parser_of(name: str, text: str | None) -> argparse.ArgumentParser:
    """Return an empty parser of `figura NAME`, which prints `text`, a module's docstring, as its help."""
    return argparse.ArgumentParser(
        prog=f"figura {name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
