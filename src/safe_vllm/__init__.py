"""A launcher for ``vllm serve`` that survives GPU kernel faults."""
