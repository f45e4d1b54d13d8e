"""What may not break: kills at any moment, two at once, full disks, damage, hostile input, hours of steps.

Each part has a long form, `python -m tests.reliability.<part>`, and a short one that pytest runs.
"""

import sys
from pathlib import Path

if (TESTS := str(Path(__file__).parents[1])) not in sys.path:  # pytest finds there what tests share
    sys.path.insert(0, TESTS)
