"""What everything else uses: errors, files, YAML, seeds, ranks. Imports no other package of figura."""

import os

# OpenCV reads this when it is imported, and then refuses larger pictures by their head: 2^28 pixels take 0.8 GB.
os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(1 << 28))
