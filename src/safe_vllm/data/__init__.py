"""Facts about vLLM as data, each with a link to its source."""
