"""Shared by recipes with people."""
