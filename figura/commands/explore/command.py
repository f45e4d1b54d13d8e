"""Serve a page to this machine's browser: browse data, watch and compare runs, try what is trained.

Run it in a project. The page is at http://127.0.0.1:8080; nobody on another machine can open it (through SSH:
`ssh -L 8080:127.0.0.1:8080 HOST`), but other users of this one can. It needs `pip install nicegui`. Ctrl-C
ends it; a training that it has started goes on.
"""

import importlib.util
from pathlib import Path

from figura.base.errors import DISTRIBUTION, UserError
from figura.commands import parser_of
from figura.pipeline.dag import PIPELINE, entries

PORT = 8080


def main(arguments: list[str]) -> None:
    parser = parser_of("explore", __doc__)
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default: {PORT}")
    args = parser.parse_args(arguments)
    if not 1 <= args.port <= 65535:
        raise UserError(f"--port {args.port}: expected 1 to 65535")
    recipes = entries("recipes")
    if not recipes:
        raise UserError(f"{PIPELINE}: its `vars` have no map `recipes`, so there is nothing to explore")
    if importlib.util.find_spec("nicegui") is None:
        raise UserError(f"NiceGUI is not installed: `pip install '{DISTRIBUTION}[explore]'`")

    from figura.commands.explore.page import serve

    serve({name: Path(entry["params"]) for name, entry in recipes.items()}, args.port)
