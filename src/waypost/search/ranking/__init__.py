"""Ranking: candidates, scores, boosts and diversity."""
