"""RTFS: agent cards, agent profiles, discovery criteria and forms."""
