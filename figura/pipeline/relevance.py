"""Modules of figura that change no result, so that no manifest has them.

All that other code gets from them is an error, a text, a lock, a place on a machine, or nothing. A module that also
computes something does not belong here: move the function. `tests/code/test_relevance.py` runs stages with each of
these modules corrupted, and compares the results.
"""

WITHOUT_EFFECT = {
    "figura.base.error_collector": "words the errors of a file; with an error, a stage ends",
    "figura.base.exit_status": "ends a process: its status and last line",
    "figura.base.lock": "keeps two processes out of one folder",
    "figura.engine.signals": "stops a training on a signal; it resumes",
    "figura.formats.person_check": "checks a copy of an annotation",
    "figura.formats.split_advice": "words the advice about a missing split",
    "figura.launch": "starts a stage: how many processes, on which machines, GPUs and cores, with which allocator",
    "figura.live": "watches a training",
    "figura.pipeline": "gives manifests, causes and messages; refuses untracked files",
    "figura.recipe.check": "checks a copy of a recipe",
    "figura.recipe.check_metrics": "checks a copy of a recipe",
    "figura.recipe.name_check": "checks names in steps and modes",
    "figura.recipe.other_systems": "hints in messages",
    "figura.training.process_record": "records how a training was started, in its log",
    "figura.training.reporter": "shows the progress of a training",
    "figura.training.sanity_check": "checks shapes; the trainer restores weights, buffers and random states",
    "figura.training.warnings": "words warnings before a training, and what broke one",
    "figura.training.weight_checks": "refuses weights that are not finite, or differ between ranks",
}
"""Dotted names, of modules and packages, and the reason of each."""


def changes_results(module: str) -> bool:
    """Whether a module may change a result: neither it nor a package above it is in `WITHOUT_EFFECT`."""
    parts = module.split(".")
    return not any(".".join(parts[: end + 1]) in WITHOUT_EFFECT for end in range(len(parts)))
