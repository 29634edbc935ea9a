"""The language-model proposer: client for any OpenAI-compatible endpoint, budget, prompts, line patches, the proposer itself."""
