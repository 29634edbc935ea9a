"""Proposers: planner (no LLM), human, scripted."""
