"""Which settings systemd knows, where they stand, and what they may say. What it does not take it passes over.

https://www.freedesktop.org/software/systemd/man/latest/systemd.directives.html
"""

from __future__ import annotations

import re
from collections.abc import Callable

from safe_vllm.checks.unit_spans import is_span
from safe_vllm.errors import nearest

ALIKE = 0.86
"""From here on a name is taken for a misspelt one: systemd has more of them than stand here, and gets new ones."""
TRUTHS = ("1", "yes", "y", "true", "t", "on", "0", "no", "n", "false", "f", "off")
OF_UNIT = (
    *("Description", "Documentation", "Wants", "Requires", "Requisite", "BindsTo", "PartOf", "Upholds", "Conflicts"),
    *("Before", "After", "OnFailure", "OnSuccess", "RequiresMountsFor", "WantsMountsFor", "DefaultDependencies"),
    *("StartLimitIntervalSec", "StartLimitBurst", "StartLimitAction", "FailureAction", "SuccessAction"),
    *("JobTimeoutSec", "RefuseManualStart", "RefuseManualStop", "StopWhenUnneeded", "CollectMode", "SourcePath"),
)
OF_INSTALL = ("WantedBy", "RequiredBy", "UpheldBy", "Alias", "Also", "DefaultInstance")
OF_SERVICE = (
    *("Type", "ExitType", "RemainAfterExit", "PIDFile", "BusName", "NotifyAccess", "ExecStart", "ExecStartPre"),
    *("ExecStartPost", "ExecCondition", "ExecReload", "ExecStop", "ExecStopPost", "RestartSec", "RestartSteps"),
    *("RestartMaxDelaySec", "TimeoutStartSec", "TimeoutStopSec", "TimeoutAbortSec", "TimeoutStartFailureMode"),
    *("TimeoutStopFailureMode", "RuntimeMaxSec", "RuntimeRandomizedExtraSec", "WatchdogSec", "WatchdogSignal"),
    *("Restart", "RestartMode", "SuccessExitStatus", "RestartPreventExitStatus", "RestartForceExitStatus"),
    *("OOMPolicy", "OOMScoreAdjust", "KillMode", "KillSignal", "RestartKillSignal", "SendSIGHUP", "SendSIGKILL"),
    *("FinalKillSignal", "ReloadSignal", "User", "Group", "SupplementaryGroups", "DynamicUser", "WorkingDirectory"),
    *("RootDirectory", "RootImage", "Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment", "UMask"),
    *("StandardInput", "StandardOutput", "StandardError", "SyslogIdentifier", "LogRateLimitBurst", "Nice", "Delegate"),
    *("StateDirectory", "CacheDirectory", "RuntimeDirectory", "LogsDirectory", "ConfigurationDirectory"),
    *("StateDirectoryMode", "CacheDirectoryMode", "RuntimeDirectoryMode", "LogsDirectoryMode"),
    *("RuntimeDirectoryPreserve", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths"),
    *("BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "ProtectSystem", "ProtectHome", "ProtectClock"),
    *("ProtectHostname", "ProtectProc", "ProcSubset", "ProtectKernelTunables", "ProtectKernelModules"),
    *("ProtectKernelLogs", "ProtectControlGroups", "PrivateTmp", "PrivateDevices", "PrivateNetwork", "PrivateUsers"),
    *("PrivateMounts", "PrivateIPC", "PrivatePIDs", "DevicePolicy", "DeviceAllow", "MemoryDenyWriteExecute"),
    *("NoNewPrivileges", "RestrictSUIDSGID", "RestrictRealtime", "RestrictNamespaces", "RestrictAddressFamilies"),
    *("RestrictFileSystems", "SystemCallFilter", "SystemCallArchitectures", "SystemCallErrorNumber", "LockPersonality"),
    *("CapabilityBoundingSet", "AmbientCapabilities", "LimitCORE", "LimitCPU", "LimitNOFILE", "LimitMEMLOCK"),
    *("LimitNPROC", "LimitSTACK", "LimitAS", "LimitDATA", "LimitRSS", "LimitFSIZE", "TasksMax", "Slice", "RemoveIPC"),
    *("CPUAffinity", "CPUQuota", "CPUWeight", "NUMAPolicy", "NUMAMask", "AllowedCPUs", "AllowedMemoryNodes"),
    *("IOSchedulingClass", "IOWeight", "MemoryMax", "MemoryHigh", "MemoryMin", "MemoryLow", "MemorySwapMax"),
    *("IPAddressAllow", "IPAddressDeny", "LoadCredential", "SetCredential", "KeyringMode", "CoredumpFilter"),
)
MATTER = (
    *("Type", "NotifyAccess", "ExecStart", "Environment", "EnvironmentFile", "RestartSec", "Restart", "RuntimeMaxSec"),
    *("TimeoutStartSec", "TimeoutStopSec", "TimeoutStartFailureMode", "WatchdogSec", "SuccessExitStatus", "ExecReload"),
    *("RestartPreventExitStatus", "RestartSteps", "RestartMaxDelaySec", "OOMPolicy", "KillMode", "KillSignal"),
    *("SendSIGKILL", "StartLimitIntervalSec", "StartLimitBurst", "StateDirectory", "CacheDirectory", "ReadWritePaths"),
    *("ProtectSystem", "ProtectHome", "LimitNOFILE", "LimitMEMLOCK", "TasksMax", "LimitCORE", "StandardOutput"),
    *("StandardError", "DynamicUser", "WorkingDirectory"),
)
"""Those that a check looks at: a name that is almost one of them is told."""
SECTIONS = {
    **dict.fromkeys(OF_SERVICE, "Service"),
    **dict.fromkeys(OF_UNIT, "Unit"),
    **dict.fromkeys(OF_INSTALL, "Install"),
}
OLD_PLACES = {("StartLimitBurst", "Service"), ("StartLimitAction", "Service"), ("FailureAction", "Service")}
"""Where they stood before systemd 230, and are still read."""
CHOICES = {
    "Type": ("simple", "exec", "forking", "oneshot", "dbus", "notify", "notify-reload", "idle"),
    "NotifyAccess": ("none", "main", "exec", "all"),
    "KillMode": ("control-group", "mixed", "process", "none"),
    "Restart": ("no", "always", "on-success", "on-failure", "on-abnormal", "on-abort", "on-watchdog"),
    "OOMPolicy": ("continue", "stop", "kill"),
    "DevicePolicy": ("auto", "closed", "strict"),
    "TimeoutStartFailureMode": ("terminate", "abort", "kill"),
    "TimeoutStopFailureMode": ("terminate", "abort", "kill"),
    "ProtectSystem": (*TRUTHS, "full", "strict"),
    "ProtectHome": (*TRUTHS, "read-only", "tmpfs"),
}
SPANS = (
    *("TimeoutStartSec", "TimeoutStopSec", "TimeoutAbortSec", "RestartSec", "RestartMaxDelaySec", "RuntimeMaxSec"),
    *("WatchdogSec", "StartLimitIntervalSec"),
)
TRUTH_VALUES = ("SendSIGKILL", "DynamicUser", "MemoryDenyWriteExecute", "NoNewPrivileges", "ProtectClock")
NUMBERS = ("StartLimitBurst", "RestartSteps")


def trouble(name: str, value: str, section: str) -> str | None:
    """Return why systemd passes a line over; ``None``: it does not, as far as is known here."""
    place = SECTIONS.get(name)
    if place is None:
        near = nearest(name, MATTER, ALIKE)
        return f"there is no {name}; did you mean {near}?" if near else None
    if section in ("Unit", "Service", "Install") and section != place and (name, section) not in OLD_PLACES:
        return f"{name} belongs below [{place}], and stands below [{section}]"
    if not value or "%" in value:
        return None
    return None if _reader(name)(value) else f"{value[:40]!r} is nothing that {name} can be{_expected(name)}"


def _expected(name: str) -> str:
    return f": it is one of {', '.join(CHOICES[name])}" if name in CHOICES and len(CHOICES[name]) < len(TRUTHS) else ""


def _reader(name: str) -> Callable[[str], bool]:
    if name in CHOICES:
        return lambda value: value in CHOICES[name] or (value.lower() in TRUTHS and value.lower() in CHOICES[name])
    if name in SPANS:
        return is_span
    if name in TRUTH_VALUES:
        return lambda value: value.lower() in TRUTHS
    if name in NUMBERS:
        return lambda value: re.fullmatch(r"[0-9]+", value) is not None
    return lambda value: True
