"""Running vLLM once. The only folder that touches processes."""
