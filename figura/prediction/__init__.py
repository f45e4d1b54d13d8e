"""Prediction: trained networks on arbitrary pictures."""
