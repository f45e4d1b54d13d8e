"""Skeletons of a few joints, as settings of a recipe say them."""

STAR = {
    "keypoints": ["tip", "left_end", "right_end"],
    "sigmas": [0.1, 0.1, 0.1],
    "connections": [["tip", "left_end"], ["tip", "right_end"]],
    "standing_pose": [[0, 1], [-1, 0], [1, 0]],
}
DOG = {
    "keypoints": ["head", "left_paw", "right_paw", "tail", "collar"],
    "sigmas": [0.05] * 5,
    "connections": [["head", "tail"], ["head", "left_paw"], ["head", "right_paw"]],
    "standing_pose": [[0, 3], [-1, 0], [1, 0], [0, 1], [0, 2]],
}
