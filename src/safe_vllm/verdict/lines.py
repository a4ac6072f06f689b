"""One line of output taken apart: who wrote it, how serious it is, and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

LONGEST_BYTES = 65536
"""What lies beyond this many bytes of one line is not looked at."""
MOST_RECORDS = 64
"""So many of one line are taken apart, and one for all the rest."""

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*\x07?|[@-Z\\^_])")

# as rsyslog, JSON written twice, and terminals show the escape character
_SHOWN_ESCAPES = ("#033[", "\\x1b[", "\\u001b[", "\\033[", "^[[")
_SHOWN_ANSI = re.compile(f"(?:{'|'.join(map(re.escape, _SHOWN_ESCAPES))})[0-9;]*m")

# Ray prints equal lines of several workers once, and says so behind them
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\](?: \(Ray deduplicates logs by default\..*)?$")
_PREFIX = re.compile(r"\(([A-Za-z][\w.:=-]*(?: [\w.:=-]+){0,3}?) pid=\d+(?:, [^()]{0,80})?\)(?: |$)")
_LEVELS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_LEVEL = rf"(?P<level>{_LEVELS})"
_DATE = r"\d\d-\d\d \d\d:\d\d:\d\d"
_CLOCK = r"(?P<date>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d)(?:[.,]\d+)?"
_SOURCE = r"(?P<source>[\w./<>-]+):\d+"
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}

_LAYOUTS = tuple(
    re.compile(layout)
    for layout in (
        # vLLM: from 0.8 "LEVEL MM-DD HH:MM:SS [file.py:1] ", before that without the first bracket
        rf"{_LEVEL} {_CLOCK} \[?{_SOURCE}\](?: |$)",
        # FlashInfer
        rf"\d{{4}}-{_CLOCK} - {_LEVEL} - {_SOURCE} - [\w.]+: ",
        # Python's own formatter, as logging configurations have it: time, name, level
        rf"\d{{4}}-{_CLOCK} - (?P<source>[A-Za-z_][\w.]*) - {_LEVEL} - ",
        # torch's C++ side, "[rank0]:[E606 17:08:46.97 Name.cpp:1] ", and glog, "E0606 17:08:46.97 123 name.py:1] "
        rf"(?:\[(?P<process>rank\d+)\]:)?\[?(?P<level>[IWEF])(?:\d{{3,4}} \d\d:\d\d:\d\d[.\d]*(?: +\d+)?)? {_SOURCE}\]"
        r"(?: |$)",
        # Ray's C++ side
        rf"\[\d{{4}}-{_CLOCK} (?P<level>[IWEF]) [\d ]+\] {_SOURCE}: ",
        # Python's warnings, but for that by which torch tells why it sees no GPU
        r"\S+\.py:\d+: (?P<warned>)(?=[A-Z]\w*Warning: (?!CUDA initialization))",
        # NCCL's own chatter; what it warns about has another shape, and may be the cause
        r"[\w.-]+:\d+:\d+ \[\d+\] (?:\S+ )?NCCL (?P<level>INFO) ",
        # uvicorn
        rf"{_LEVEL}: {{2,5}}(?=\S)",
        # SGLang
        rf"\[\d{{4}}-{_CLOCK}(?: (?P<process>[A-Z]{{2}}\d+(?: [A-Z]{{2}}\d+)*))?\] ",
        # Dynamo
        rf"\d{{4}}-(?P<date>\d\d-\d\d)T(?P<time>[\d:]{{8}})[.\d]*Z? +{_LEVEL} (?P<source>[\w.:]+): ",
        # torch's excepthook
        r"\[(?P<process>rank\d+)\]: ?",
    )
)
# what docker compose, kubectl --timestamps, a container runtime's file and the journal put in front
_WRAPPER = re.compile(
    r"[\w.@-]+ +\| |\[pod/[\w./-]+\] |\d{1,3}: (?=\(|(?:INFO|ERROR|WARNING)[ :])"
    r"|\d{4}-\d\d-\d\dT[\d:]{8}\S* [\w.-]+ [\w.@/-]+\[\d+\]: "
    r"|\d{4}-\d\d-\d\dT[\d:]{8}[.,\d]*(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?(?![A-Z]+ [\w.:]+: )"
    r"|[A-Z][a-z]{2} [ \d]\d [\d:]{8} [\w.-]+ [\w.@/-]+(?:\[\d+\])?: "
    r"|\[ *\d+\.\d{6}\] [\w.-]+ [\w.@/-]+\[\d+\]: "
)
# what anything may begin with, and a store's front only where a record of vLLM's follows: a time, a bracketed time,
# the place in a file, or the names of a pod and its container
_LOOSE_WRAPPER = re.compile(
    r"(?:(?:\d{4}-\d\d-\d\d[ T]|[A-Z][a-z]{2} [ \d]\d )?\d\d:\d\d:\d\d[.,\d]*Z? +|\d{10}(?:\.\d+)? "
    r"|\[(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d[.,\d]*Z?\]:? +|(?:[\w./-]+[:-])?\d+[:-]"
    r"|[a-z0-9.-]+ (?:› )?[a-z0-9.-]+ )"
    rf"(?=\([A-Za-z][\w.:=-]*(?: [\w.:=-]+){{0,3}}? pid=\d+[,)]|(?:{_LEVELS})(?: {_DATE}|: {{2,5}}\S)"
    rf"|safe-vllm: |\d{{4}}-{_DATE},\d{{3}} - )"
)
_MOST_WRAPPERS = 3
_ACCESS = re.compile(r'\S{1,80} - "(?P<method>[A-Z]+) (?P<path>.*) HTTP/[\d.]+" (?P<status>\d{3})(?: |$)')
# formatters agree on little more than that there are a level, a message and a traceback
_LEVEL_KEYS = ("levelname", "level", "severity", "log.level")
_MESSAGE_KEYS = ("message", "msg", "event")
_TRACEBACK_KEYS = ("exc_info", "exception", "exc_text", "traceback", "stack_trace", "error.stack_trace")
_MOMENT = re.compile(r"(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
# the record of another writer, behind a progress bar that had not ended its line
_NEXT = re.compile(
    r"\([A-Za-z][\w.:=-]*(?: [\w.:=-]+){0,3}? pid=\d+(?:, [^()]{0,80})?\) "
    r"(?=(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)[ :]|\d{4}-\d\d-\d\d )"
    # whatever comes right behind the bar itself: native code writes no prefix
    r"|(?<=/s\])(?=\S)|(?<=s/it\])(?=\S)|(?<=s/profile\])(?=\S)"
)


@dataclass(frozen=True)
class Record:
    """One log record, or a line that is none."""

    message: str
    """What is said, without prefixes and colours."""
    text: str
    """The whole of it, without colours."""
    level: str | None = None
    process: str | None = None
    """Such as ``Worker_TP0``, or ``rank0`` where only torch names the writer."""
    source: str | None = None
    """The file that the record names."""
    clock: str | None = None
    """``MM-DD HH:MM:SS``, where the record tells."""
    request: tuple[str, str, int] | None = None
    """Method, path and status of an HTTP access record."""

    @property
    def is_calm(self) -> bool:
        """Whether the writer itself calls this ordinary."""
        return self.level in ("DEBUG", "INFO")


def clean(line: bytes) -> str:
    """Return ``line`` as text without colours, line end and Ray's remark on repetitions, invalid bytes replaced."""
    text = line[:LONGEST_BYTES].decode("utf-8", "replace").rstrip("\r\n")
    text = _ANSI.sub("", text) if "\x1b" in text else text
    text = _SHOWN_ANSI.sub("", text) if any(escape in text for escape in _SHOWN_ESCAPES) else text
    return _REPEATED.sub("", text) if "x across cluster]" in text else text


def after_wrapper(text: str) -> int:
    """Return where ``text`` begins behind what the stores of a log put in front of it, one in front of the other."""
    at = 0
    for _ in range(_MOST_WRAPPERS):
        wrapper = _WRAPPER.match(text, at) or _LOOSE_WRAPPER.match(text, at)
        if wrapper is None:
            break
        at = wrapper.end()
    return at


def parse(text: str) -> Record:
    """Return the one record that begins where ``text`` begins."""
    if objects := _objects(text):
        return objects[0]
    at, process = after_wrapper(text), None
    while prefix := _PREFIX.match(text, at):
        at, process = prefix.end(), prefix[1]
    for layout in _LAYOUTS:
        if found := layout.match(text, at):
            return _with_request(_record(text, found, process))
    return Record(text[at:], text, process=process)


def _record(text: str, found: re.Match[str], process: str | None) -> Record:
    parts = found.groupdict()
    level = "WARNING" if "warned" in parts else parts.get("level")
    return Record(
        message=text[found.end() :],
        text=text,
        level=_LETTERS.get(level, level) if level else None,
        process=process or parts.get("process"),
        source=parts.get("source"),
        clock=f"{parts['date']} {parts['time']}" if "date" in parts else None,
    )


def _with_request(record: Record) -> Record:
    if record.level != "INFO" or '"' not in record.message:
        return record
    found = _ACCESS.match(record.message)
    if not found:
        return record
    return replace(record, request=(found["method"], found["path"], int(found["status"])))


def _first(entry: dict[str, object], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if isinstance(value := entry.get(name), str)), None)


def _objects(text: str) -> list[Record]:
    """Return the records of a line that a JSON formatter wrote: what is said and, line by line, its traceback."""
    at = after_wrapper(text)
    if not text.startswith('{"', at):
        return []
    try:
        entry = json.loads(text[at:])
    except (ValueError, RecursionError):
        return []
    level, message, traceback = (_first(entry, names) for names in (_LEVEL_KEYS, _MESSAGE_KEYS, _TRACEBACK_KEYS))
    if level is None or message is None:
        return []
    clock = _MOMENT.search(str(entry.get("asctime") or entry.get("timestamp") or ""))
    shared = Record(
        "",
        text,
        level=level.upper(),
        source=str(entry.get("filename") or entry.get("fileinfo") or "") or None,
        clock=f"{clock[1]} {clock[2]}" if clock else None,
    )
    prefix = _PREFIX.match(message)
    process = prefix[1] if prefix else str(entry.get("vllm_process_name") or "") or None
    said, *more = [*message[prefix.end() if prefix else 0 :].split("\n"), *(traceback or "").split("\n")]
    first = _with_request(replace(shared, message=said, process=process))
    return [first, *(replace(shared, message=line, process=process) for line in more if line)]


def split(text: str, quotes: Callable[[Record], bool]) -> list[Record]:
    """Return the records on one line. What a record that ``quotes`` foreign text says is never taken apart."""
    if objects := _objects(text):
        return objects[:1] if quotes(objects[0]) else objects
    records: list[Record] = []
    while True:
        record = parse(text)
        if len(records) == MOST_RECORDS:
            return [*records, record]
        head = len(record.text) - len(record.message)
        # a calm record may name a model, and a name may be anything
        after = None if record.is_calm or quotes(record) else _NEXT.search(text, head)
        if after is None or after.start() == 0:
            return [*records, record]
        records.append(parse(text[: after.start()]))
        text = text[after.start() :]
