#!/usr/bin/env bash
# Stands in for CML: `cml comment create [--OPTION ...] FILE`. What CML uploads must be there: a Markdown file and its pictures.
set -euo pipefail
echo "$*" >> "$RECORD/cml.txt"
[ "$1 $2" = "comment create" ]
[ -n "${REPO_TOKEN:-}" ] || { echo "REPO_TOKEN is not set" >&2; exit 1; }
file=${!#}
"$PYTHON" - "$file" "$RECORD" <<'PYTHON'
import re, shutil, sys
from pathlib import Path

import cv2

file, record = map(Path, sys.argv[1:])
text = file.read_text(encoding="utf-8")
assert text.startswith("# ") and len(text) < 65536, len(text)
assert text.count("<details>") == text.count("</details>")
for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
    assert cv2.imread(str(file.parent / picture)) is not None, picture
shutil.copy(file, record / "comment.md")
PYTHON
