"""Start a stage with memory settings that pay: `python -m stages.launch STAGE [ARGUMENT ...]`.

glibc gives large blocks back to the system at each free and faults them in again at the next use; a training step frees
and takes the same tensors thousands of times. Larger thresholds keep them. What the caller has set stays.
"""

import os
import sys

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(1 << 26),
}


def main(stage: str, arguments: list[str]) -> None:
    """Replace this process by the stage."""
    chosen = {name: value for name, value in ALLOCATOR.items() if name not in os.environ}
    if chosen:
        print("launch:", " ".join(f"{name}={value}" for name, value in chosen.items()), flush=True)
    command = [sys.executable, "-m", f"stages.{stage}", *arguments]
    os.execve(sys.executable, command, os.environ | chosen)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
