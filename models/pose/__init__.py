"""Pose estimation with composite fields (Kreiss, Bertoni and Alahi, CVPR 2019 and T-ITS 2021)."""
