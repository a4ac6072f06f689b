"""Stands in for ``vllm serve`` with Ray: starts one worker in the running cluster by vLLM's own means, and no model.

It runs in the environment of a release of vLLM. Which variables a worker gets, and how, is all that release's own code;
what the worker then has is written to a file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.append(os.environ["RAY_PACKAGES"])

import ray
from ray.runtime_env import RuntimeEnv
from vllm.ray.ray_env import get_env_vars_to_copy


class Told:
    """Tells its environment."""

    def environment(self) -> dict[str, str]:
        """Return it as it is now."""
        return dict(os.environ)


def of_an_engine() -> dict[str, str]:
    """Start an engine's actor as ``CoreEngineActorManager`` does, and return its environment."""
    names = get_env_vars_to_copy(destination="DPEngineCoreActor")
    handed = {name: os.environ[name] for name in names if name in os.environ}
    actor = ray.remote(Told).options(num_cpus=0, runtime_env=RuntimeEnv(env_vars=handed)).remote()
    return ray.get(actor.environment.remote())


def of_a_worker_of_v2() -> dict[str, str]:
    """Start a worker as ``RayExecutorV2`` does. It takes its variables first, and then fails for want of a model."""
    from vllm.v1.executor.ray_env_utils import get_driver_env_vars
    from vllm.v1.executor.ray_executor_v2 import RayWorkerProc
    from vllm.v1.executor.ray_utils import WORKER_SPECIFIC_ENV_VARS

    class Watched(RayWorkerProc, Told):
        pass

    no_model = SimpleNamespace(parallel_config=None)
    actor = ray.remote(Watched).options(num_cpus=0).remote(no_model, 0, None, True)
    handed = get_driver_env_vars(worker_specific_vars=WORKER_SPECIFIC_ENV_VARS)
    try:
        ray.get(actor.initialize_worker.remote(0, {}, "", handed))
    except ray.exceptions.RayTaskError as error:
        print(f"as expected: {str(error).splitlines()[-1]}")
    return ray.get(actor.environment.remote())


def of_a_worker_of_v1() -> dict[str, str]:
    """Start a worker as ``RayDistributedExecutor`` does, and return its environment."""
    from vllm.platforms import current_platform
    from vllm.v1.executor.ray_executor import RayDistributedExecutor
    from vllm.v1.executor.ray_utils import RayWorkerWrapper

    class Watched(RayWorkerWrapper, Told):
        pass

    actor = ray.remote(Watched).options(num_cpus=0).remote(rpc_rank=0)
    more = set(current_platform.additional_env_vars) | getattr(RayDistributedExecutor, "ADDITIONAL_ENV_VARS", set())
    own = RayDistributedExecutor.WORKER_SPECIFIC_ENV_VARS
    names = get_env_vars_to_copy(exclude_vars=own, additional_vars=more, destination="workers")
    handed = {name: os.environ[name] for name in names if name in os.environ}
    ray.get(actor.update_environment_variables.remote([handed]))
    return ray.get(actor.environment.remote())


def main() -> int:
    """Write what the worker has, and end as a server that fails."""
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    import vllm.v1.executor as executors

    has_v2 = Path(executors.__path__[0], "ray_executor_v2.py").exists()
    by_engine = "--data-parallel-backend" in sys.argv
    seen = of_an_engine() if by_engine else of_a_worker_of_v2() if has_v2 else of_a_worker_of_v1()
    Path(os.environ["SEEN"]).write_text(json.dumps({"started_with": sys.argv[1:], "worker": seen}))
    return 1


if __name__ == "__main__":
    sys.exit(main())
