#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two vgpus on one card: what a monitor in each sees of the other. TAP. Arguments: the aliquot command, shim-nvml (which can hold memory)."""

import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20
ALIQUOT, HOLD = sys.argv[1:3]
# The monitor: loads NVML by its name, as tools do.
LOOK = """
import ctypes as C, json
nv = C.CDLL("libnvidia-ml.so.1")
class Memory(C.Structure):
    _fields_ = [(n, C.c_ulonglong) for n in ("total", "free", "used")]
class Process(C.Structure):
    _fields_ = [("pid", C.c_uint), ("memory", C.c_ulonglong), ("gi", C.c_uint), ("ci", C.c_uint)]
card, count, memory, n, procs = C.c_void_p(), C.c_uint(), Memory(), C.c_uint(64), (Process * 64)()
assert nv.nvmlInit_v2() == 0
assert nv.nvmlDeviceGetCount_v2(C.byref(count)) == 0
assert nv.nvmlDeviceGetHandleByIndex_v2(0, C.byref(card)) == 0
assert nv.nvmlDeviceGetMemoryInfo(card, C.byref(memory)) == 0
assert nv.nvmlDeviceGetComputeRunningProcesses_v3(card, C.byref(n), procs) == 0
print(json.dumps([count.value, memory.total, memory.used, [p.memory for p in procs[:n.value]]]))
"""


def aliquot(*arguments):
    done = subprocess.run([ALIQUOT, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{arguments}: status {done.returncode}: {done.stderr}"
    return done.stdout


def look(vgpu):
    return json.loads(aliquot("run", "--vgpu", vgpu, "--", sys.executable, "-c", LOOK))


def tests():
    aliquot("create", "a", "--mem", "100MiB", "--card", "0")
    aliquot("create", "b", "--mem", "200MiB", "--card", "0")
    yield "each sees its own limit, and nothing used", look("a") == [1, 100 * MIB, 0, []] and look("b") == [1, 200 * MIB, 0, []]
    holder = subprocess.Popen(
        [ALIQUOT, "run", "--vgpu", "a", "--", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "AQ_TEST_HOLD": str(32 * MIB)}
    )
    yield "a program holds memory in one of them", holder.stdout.read(1) == b"+"
    count, total, used, memory = look("a")
    yield "which shows there", count == 1 and total == 100 * MIB and len(memory) == 1 and used == memory[0] >= 32 * MIB
    yield "and not in the other", look("b") == [1, 200 * MIB, 0, []]
    holder.stdin.close()
    yield "it ends", holder.wait(20) == 0
    yield "and is gone", look("a")[3] == []
    aliquot("rm", "--force", "a")
    aliquot("rm", "--force", "b")


def main():
    if "AQ_TEST_NEIGHBOURS" not in os.environ:
        with tempfile.TemporaryDirectory() as place:
            os.environ.update(AQ_TEST_NEIGHBOURS="1", XDG_RUNTIME_DIR=place, ALIQUOT_DAEMON="")
            return subprocess.run([ALIQUOT, "soft", "--cards", "2", "--", sys.executable, *sys.argv]).returncode
    failed = 0
    print("1..6", flush=True)
    for n, (what, ok) in enumerate(tests(), 1):
        failed += not ok
        print(f"{'ok' if ok else 'not ok'} {n} - {what}", flush=True)
    return failed > 0


sys.exit(main())
