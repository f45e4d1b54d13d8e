"""A hint for one release: `python -m tools.NAME` says which command of `figura` it is now."""

import sys

from figura.command import COMMANDS

NEW = {one.module.split(".")[2]: f"figura {name}" for group in COMMANDS.values() for name, one in group.items()}
NEW |= {f"{one}_pose": f"figura pose.{one}" for one in ("overfit", "submit")}
NEW["import_openpifpaf"] = "figura import openpifpaf"
old = next((word for word in sys.orig_argv if word.startswith("tools.")), "tools.NAME")
name = old.split(".")[1]
sys.exit(f"error: python -m {old} is now: {NEW.get(name, f'python -m figura.commands.{name}')}")
