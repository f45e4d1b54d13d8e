"""Compares what revisions gave for the same examples: is a difference more than noise?"""
