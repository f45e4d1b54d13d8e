"""For watching a training: what its recipe changes, sample sheets, online scores.

It writes to `runs/<recipe>/live`, which DVC does not track, and changes no result.
"""
