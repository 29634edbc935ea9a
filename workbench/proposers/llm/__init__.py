"""The proposer that asks a language model: client for OpenAI-compatible endpoints, budget, prompts, line patches."""
