"""The story of a launch: attempt after attempt, judged, told, remembered and reported."""
