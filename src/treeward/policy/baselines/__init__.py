"""Baselines that share state between users or ask questions: HMAB, ICTR, ConUCB, ContextFree. Simulations only."""
