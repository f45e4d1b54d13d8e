"""SyntheticPeople: drawn scenes of people with exact keypoints, masks and identities."""
