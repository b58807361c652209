"""Debugging by hand: play a role, replay an episode with one reply changed, check a part of one's own."""
