"""What everything else uses: errors, files, YAML, seeds, ranks. Imports no other package of figura."""
