"""Paired image translation with conditional adversarial networks (Isola, Zhu, Zhou and Efros, CVPR 2017)."""
