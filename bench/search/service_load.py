"""The running service with two workers: discover requests per second, memory, and the delay until a new agent is found.

wrk generates the load if it is installed, else bench/load.py. All bodies differ. The CPU time of the client is reported, too,
because both share the machine.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from bench.load import measure, request_bytes
from bench.measures import quantile
from bench.search.agents import agents, unmistakable
from bench.search.questions import distinct, paraphrases, repeated
from bench.search.work_folder import is_filled, mark_filled, service_of, start_anew
from bench.searchers import OverHttp
from bench.sets import Question

Figures = dict[str, float]
_MEGA = 1 << 20
_NEW = 40
_PATIENCE_SECONDS = 10
_CLIENTS = 16
_HAND_RATE = 200  # requests for each second that was asked for
_LUA = """
local at = 0
local bodies = {}
function init(args)
  for line in io.lines(args[1]) do bodies[#bodies + 1] = line end
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = args[2]
end
function request()
  at = at + 1
  return wrk.format("POST", "/profile/v1/discover", nil, bodies[(at - 1) % #bodies + 1])
end
function done(summary, latency)
  io.write(string.format('{"requests":%d,"us":%d,"failed":%d,"p50":%d,"p99":%d}\\n', summary.requests, summary.duration,
    summary.errors.status + summary.errors.timeout + summary.errors.read, latency:percentile(50), latency:percentile(99)))
end
"""


def served(size: int, seconds: int, folder: Path, workers: int = 2) -> Figures:
    """Start the service that `bulk_load` or an earlier run filled, or fill one; ask it for `seconds` seconds."""
    data = service_of(folder)
    if not is_filled(folder):
        start_anew(folder)
        service = OverHttp(data)
        try:
            service.fill(agents(size))
        finally:
            service.close()
        mark_filled(folder)
    service = OverHttp(data, "--workers", str(workers))
    try:
        figures = {
            "start_seconds": round(service.start_seconds, 2),
            "first_right_seconds": _first_right(service, size),
        }
        measured = _asked(service, distinct(size, 30_000 if size >= 50_000 else 4_000), seconds, folder)
        figures |= {f"distinct_{name}": value for name, value in measured.items()}
        measured = _asked(service, repeated(size, 8_000), seconds, folder)
        figures |= {f"repeated_{name}": value for name, value in measured.items()}
        service.connect()  # the old connection was idle for too long
        figures |= memory_of(service.process) | _newly_registered(service, size)
    finally:
        service.close()
    return figures


def _first_right(service: OverHttp, size: int) -> float:
    """From the start of the process to the first answer with the agent that was meant."""
    started = time.perf_counter()
    for question in (next(paraphrases(size, seed)) for seed in range(20)):
        if question.relevant.intersection(hit.id for hit in service.find(question.text)):
            return round(service.start_seconds + time.perf_counter() - started, 2)
    return -1.0


def _asked(service: OverHttp, questions: list[Question], seconds: int, folder: Path) -> Figures:
    bodies = [json.dumps({"query": each.text, "limit": 10}).encode() for each in questions]
    before, own = _processor(service.process), _own_processor()
    measured = _by_wrk(service, bodies, seconds, folder) if shutil.which("wrk") else _by_hand(service, bodies, seconds)
    used = _processor(service.process) - before
    return measured | {
        "server_cpu_ms": round(1e3 * used / measured["answered"], 3),
        "client_cpu_ms": round(1e3 * (_own_processor() - own) / measured["answered"], 3),
    }


def _by_wrk(service: OverHttp, bodies: list[bytes], seconds: int, folder: Path) -> Figures:
    script, listed = folder / "discover.lua", folder / "bodies.ndjson"
    script.write_text(_LUA)
    listed.write_bytes(b"\n".join(bodies) + b"\n")
    command = ["wrk", "-t1", f"-c{_CLIENTS}", f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{service.port}"]
    command += ["--", str(listed), service.headers["Authorization"]]
    told = subprocess.run(command, check=True, capture_output=True, timeout=seconds + 60).stdout.decode()
    found = json.loads(told.strip().splitlines()[-1])
    answered = found["requests"] - found["failed"]  # a refusal under overload takes no time, and is no answer
    return {
        "answered": float(answered),
        "per_second": round(1e6 * answered / found["us"], 1),
        "failed": float(found["failed"]),
        "p50_ms": round(found["p50"] / 1e3, 2),
        "p99_ms": round(found["p99"] / 1e3, 2),
    }


def _by_hand(service: OverHttp, bodies: list[bytes], seconds: int) -> Figures:
    wires = [
        request_bytes("POST", "/profile/v1/discover", body, service.headers) for body in bodies[: _HAND_RATE * seconds]
    ]
    found = measure(service.port, service.process, wires, clients=_CLIENTS)
    answered = found.requests - found.failed
    return {
        "answered": float(answered),
        "per_second": round(answered / found.seconds, 1),
        "failed": float(found.failed),
        "p50_ms": round(found.p50_ms, 2),
        "p99_ms": round(found.p99_ms, 2),
    }


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _processor(process: psutil.Process) -> float:
    return float(sum(each.cpu_times().user + each.cpu_times().system for each in _family(process)))


def _own_processor() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def memory_of(process: psutil.Process) -> Figures:
    """Of a process and its children. PSS counts what processes share once."""
    each = [one.memory_full_info() for one in _family(process)]
    return {
        "processes": float(len(each)),
        "pss_mib": round(sum(one.pss for one in each) / _MEGA, 1),
        "rss_mib": round(sum(one.rss for one in each) / _MEGA, 1),
    }


def _newly_registered(service: OverHttp, size: int) -> Figures:
    """From the acknowledgement to the answer that has the agent; each question on a new connection, so any worker may answer."""
    times = []
    for agent in unmistakable(
        _NEW, first=size + 2_000_000 + int(time.time())
    ):  # new ones also in a store that was kept
        service.register([agent])
        acknowledged = time.perf_counter()
        asked = f"what can {agent.record.name} do"
        while not any(hit.id == agent.id for hit in service.find(asked)):
            service.connect()
            if time.perf_counter() - acknowledged > _PATIENCE_SECONDS:
                break
        times.append(1e3 * (time.perf_counter() - acknowledged))
        service.connect()
    return {"new_found_ms_p50": round(quantile(times, 0.5), 2), "new_found_ms_p99": round(quantile(times, 0.99), 2)}
