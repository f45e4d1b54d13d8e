"""What may not break: kills at any moment, two at once, full disks, damage, hostile input, hours of steps.

pytest runs a short form of each part. `CASES` in the environment asks for the long form with so many cases, `SEED`
draws other ones.
"""

import os

CASES = int(os.environ.get("CASES", "0"))
SEED = int(os.environ.get("SEED", "0"))
