"""What everything else uses: errors, files, YAML, seeds, ranks. It imports nothing of figura outside itself."""
