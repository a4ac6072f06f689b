"""``python -m safe_vllm``."""

from safe_vllm.cli import main

main()
