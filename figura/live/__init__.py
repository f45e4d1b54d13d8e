"""Monitoring of a training: causes of its run, sample sheets, online scores.

It writes to `runs/<recipe>/live`, which DVC does not track, and changes no result.
"""
