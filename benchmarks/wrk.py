"""Drive a service with `wrk`: bodies from a file, in turn or each once, and percentiles from its own histogram.

wrk corrects its histogram for requests that it would have sent while it waited (coordinated omission).
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

MARK = "@measured "
# When bodies are to be sent once, a connection that finds none left sends half a request line and waits. Once all
# connections wait, every body was answered: the script interrupts wrk, which then reports.
SCRIPT = """
local ffi = require("ffi")
ffi.cdef("int kill(int, int); int getpid(void);")
local sent, waiting, requests = -1, 0, {}  -- wrk makes one request that it does not send
function init(args)
  once, connections = args[2] == "once", tonumber(args[3])
  local head = "POST " .. wrk.path .. " HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\ncontent-type: application/json\\r\\n"
  for body in io.lines(args[1]) do
    requests[#requests + 1] = head .. "content-length: " .. #body .. "\\r\\n\\r\\n" .. body
  end
end
function request()
  if sent == #requests then
    if once then
      waiting = waiting + 1
      if waiting == connections then ffi.C.kill(ffi.C.getpid(), 2) end
      return "POST"
    end
    sent = 0
  end
  sent = sent + 1
  return requests[math.max(sent, 1)]
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '@measured {"requests":%d,"seconds":%.6f,"p50":%.6f,"p99":%.6f,"p999":%.6f,"wrong":%d,"broken":%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
    latency:percentile(99.9) / 1e6, e.status, e.connect + e.read + e.write + e.timeout))
end
"""


class Measured(NamedTuple):
    """The results of a run; times in seconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    p999: float
    wrong: int
    """Answers with a status of 400 or more."""
    broken: int
    """Failed connections, reads and writes, and timeouts."""

    @property
    def rate(self) -> float:
        return (self.requests - self.wrong) / self.seconds


def parsed(output: str) -> Measured:
    """Return what the script printed among wrk's own lines."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise ValueError(f"wrk printed no measurement: {output[-500:]!r}")
    return Measured(**json.loads(lines[0].removeprefix(MARK)))


def available() -> bool:
    return shutil.which("wrk") is not None


def drive(
    folder: Path, url: str, bodies: list[bytes], connections: int, seconds: float, once: bool = False
) -> Measured:
    """Send bodies from one thread; with `once`, each body once, for at most `seconds`."""
    (folder / "wrk.lua").write_text(SCRIPT)
    (folder / "bodies").write_bytes(b"\n".join(bodies) + b"\n")
    words = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(folder / "wrk.lua"), url, "--"]
    words += [str(folder / "bodies"), "once" if once else "cycle", str(connections)]
    return parsed(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
