"""The lowest layer: errors, files, YAML, seeds, ranks. Imports no other package of figura."""

import os

# Read by OpenCV on import; larger pictures are then rejected by their header: 2^28 pixels take 0.8 GB.
os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(1 << 28))
