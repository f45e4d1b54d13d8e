"""The systems that ship with figura: `figura.models.vunet.networks` is the module `vunet.networks` of the wheel.

In figura's repository they are the package `models`, and only that: a module has one name in a process.
"""

from figura.systems import PACKAGE, PROJECT, in_repository

if in_repository():
    raise ImportError(f"in figura's repository, the systems are the package {PACKAGE!r}")
__path__ = [str(PROJECT / PACKAGE)]
