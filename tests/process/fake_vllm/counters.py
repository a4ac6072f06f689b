"""What ``/metrics`` of vLLM 0.32 says, as far as it tells of the work, among much that does not."""

from __future__ import annotations

LABELS = '{engine="0",model_name="tiny, \\"quoted\\" {x}"}'
STATES = (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0))
BUCKETS = "".join(
    f'vllm:time_to_first_token_seconds_bucket{{engine="0",le="{bound}",model_name="tiny"}} 1.0\n'
    for bound in range(1000)
)
"""The page of a server with one engine has some 100 kB."""


def page(running: float, waiting: float, steps: int) -> str:
    """Return the page after so many steps of the engine."""
    states = "".join(
        f'vllm:engine_sleep_state{{engine="0",model_name="tiny",sleep_state="{name}"}} {value}\n'
        for name, value in STATES
    )
    return (
        "# HELP python_gc_objects_collected_total Objects collected during gc\n"
        f'python_gc_objects_collected_total{{generation="0"}} {id(object())}.0\n'
        "# TYPE vllm:num_requests_running gauge\n"
        f"vllm:num_requests_running{LABELS} {running}\n"
        f"vllm:num_requests_waiting{LABELS} {waiting}\n"
        f"{states}"
        f"vllm:kv_cache_usage_perc{LABELS} 0.0\n"
        f"vllm:prompt_tokens_total{LABELS} 9.0\n"
        f"vllm:generation_tokens_total{LABELS} {steps}.0\n"
        f"vllm:iteration_tokens_total_count{LABELS} {steps}.0\n"
        f"{BUCKETS}"
    )
