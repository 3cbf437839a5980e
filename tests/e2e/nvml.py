#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVML as a monitor sees it, while another process uses the card through CUDA: TAP.

Both libraries are called through ctypes with structures written down here, not through our headers: a second opinion on the ABI. Run under a
server: with-gpud.sh nvml.py LIBCUDA LIBNVIDIA-ML
"""

import ctypes as C
import os
import signal
import subprocess
import sys
import time

MIB = 1 << 20
SUCCESS, INVALID_ARGUMENT, INSUFFICIENT_SIZE, NOT_FOUND = 0, 2, 7, 6

# Loops for %0 rounds of a millisecond: long on the card, cheap to interpret.
KERNEL = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry idle(.param .u32 rounds)
{
	.reg .pred p;
	.reg .u32 r;
	ld.param.u32 r, [rounds];
again:
	nanosleep.u32 1000000;
	sub.u32 r, r, 1;
	setp.ne.u32 p, r, 0;
	@p bra again;
	ret;
}
"""


class Memory(C.Structure):
    _fields_ = [("total", C.c_ulonglong), ("free", C.c_ulonglong), ("used", C.c_ulonglong)]


class MemoryV2(C.Structure):
    _fields_ = [("version", C.c_uint)] + [(n, C.c_ulonglong) for n in ("total", "reserved", "free", "used")]


class Process(C.Structure):
    _fields_ = [("pid", C.c_uint), ("memory", C.c_ulonglong), ("gi", C.c_uint), ("ci", C.c_uint)]


class ProcessV1(C.Structure):
    _fields_ = [("pid", C.c_uint), ("memory", C.c_ulonglong)]


class Sample(C.Structure):
    _fields_ = [("pid", C.c_uint), ("time", C.c_ulonglong)] + [(n, C.c_uint) for n in ("sm", "mem", "enc", "dec")]


class Utilization(C.Structure):
    _fields_ = [("gpu", C.c_uint), ("memory", C.c_uint)]


class Pci(C.Structure):
    _fields_ = (
        [("legacy", C.c_char * 16)]
        + [(n, C.c_uint) for n in ("domain", "bus", "device", "id", "subsystem")]
        + [("bus_id", C.c_char * 32)]
    )


def worker(libcuda):
    """A CUDA program that does what it is told on stdin, one line a command, and answers each with one line."""
    cuda = C.CDLL(libcuda)

    def must(rc, what):
        if rc:
            raise SystemExit(f"{what}: CUDA error {rc}")

    ctx, mod, fn, dev, ptr = C.c_void_p(), C.c_void_p(), C.c_void_p(), C.c_int(), C.c_ulonglong()
    must(cuda.cuInit(0), "cuInit")
    must(cuda.cuDeviceGet(C.byref(dev), 0), "cuDeviceGet")
    for line in sys.stdin:
        verb, _, arg = line.strip().partition(" ")
        answer = "ok"
        if verb == "context":
            must(cuda.cuCtxCreate_v2(C.byref(ctx), 0, dev), "cuCtxCreate")
        elif verb == "alloc":
            must(cuda.cuMemAlloc_v2(C.byref(ptr), C.c_size_t(int(arg))), "cuMemAlloc")
        elif verb == "free":
            must(cuda.cuMemFree_v2(ptr), "cuMemFree")
        elif verb == "start":
            rounds = C.c_uint(int(arg))
            params = (C.c_void_p * 1)(C.cast(C.byref(rounds), C.c_void_p))
            must(cuda.cuModuleLoadData(C.byref(mod), KERNEL), "cuModuleLoadData")
            must(cuda.cuModuleGetFunction(C.byref(fn), mod, b"idle"), "cuModuleGetFunction")
            must(cuda.cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, None, params, None), "cuLaunchKernel")
        elif verb == "wait":
            must(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
        elif verb == "identity":
            uuid, bus, total = (C.c_ubyte * 16)(), C.create_string_buffer(32), C.c_size_t()
            must(cuda.cuDeviceGetUuid_v2(uuid, dev), "cuDeviceGetUuid")
            must(cuda.cuDeviceGetPCIBusId(bus, 32, dev), "cuDeviceGetPCIBusId")
            must(cuda.cuDeviceTotalMem_v2(C.byref(total), dev), "cuDeviceTotalMem")
            answer = f"{bytes(uuid).hex()} {bus.value.decode()} {total.value}"
        elif verb == "info":
            free, total = C.c_size_t(), C.c_size_t()
            must(cuda.cuMemGetInfo_v2(C.byref(free), C.byref(total)), "cuMemGetInfo")
            answer = f"{free.value} {total.value}"
        print(answer, flush=True)


class Worker:
    def __init__(self, libcuda):
        self.proc = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "worker", libcuda],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.pid = self.proc.pid

    def do(self, command):
        self.proc.stdin.write(command + "\n")
        self.proc.stdin.flush()
        answer = self.proc.stdout.readline().strip()
        if not answer:
            raise SystemExit(f"Bail out! the worker died at {command}")
        return answer

    def kill(self):
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait()


class Tap:
    def __init__(self, planned):
        self.planned, self.n, self.failed = planned, 0, 0
        print(f"1..{planned}", flush=True)

    def ok(self, good, what):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {what}", flush=True)

    def exit(self):
        sys.exit(0 if self.failed == 0 and self.n == self.planned else 1)


def until(condition, seconds=5.0):
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def main(libcuda, libnvml):
    nvml = C.CDLL(libnvml)
    nvml.nvmlErrorString.restype = C.c_char_p
    tap = Tap(19)
    dev, count, text = C.c_void_p(), C.c_uint(), C.create_string_buffer(96)

    # NVML lists what the machine has, whatever CUDA may see.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    tap.ok(nvml.nvmlDeviceGetCount_v2(C.byref(count)) == 1, "nothing works before nvmlInit")
    tap.ok(nvml.nvmlInit_v2() == SUCCESS, "nvmlInit")
    del os.environ["CUDA_VISIBLE_DEVICES"]
    tap.ok(nvml.nvmlDeviceGetCount_v2(C.byref(count)) == SUCCESS and count.value >= 1, "there is a card")
    nvml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(dev))
    tap.ok(nvml.nvmlDeviceGetName(dev, text, 96) == SUCCESS and text.value.endswith(b"(software)"), "its name says what it is")

    def memory():
        m = Memory()
        assert nvml.nvmlDeviceGetMemoryInfo(dev, C.byref(m)) == SUCCESS
        return m

    def processes(function=nvml.nvmlDeviceGetComputeRunningProcesses_v3, kind=Process):
        n, infos = C.c_uint(64), (kind * 64)()
        assert function(dev, C.byref(n), infos) == SUCCESS
        return {infos[i].pid: infos[i].memory for i in range(n.value)}

    def sample_of(pid, since=0):
        n, samples = C.c_uint(64), (Sample * 64)()
        rc = nvml.nvmlDeviceGetProcessUtilization(dev, samples, C.byref(n), C.c_ulonglong(since))
        return next((samples[i] for i in range(n.value) if samples[i].pid == pid), None) if rc == SUCCESS else None

    w = Worker(libcuda)
    uuid, bus_id, total = w.do("identity").split()
    pci, m2 = Pci(), MemoryV2(version=C.sizeof(MemoryV2) | 2 << 24)
    nvml.nvmlDeviceGetUUID(dev, text, 96)
    tap.ok(text.value.decode().replace("-", "") == "GPU" + uuid, "CUDA and NVML agree on the UUID")
    nvml.nvmlDeviceGetPciInfo_v3(dev, C.byref(pci))
    tap.ok(pci.bus_id.decode()[-12:].lower() == bus_id.lower()[-12:], "… on the PCI address")
    nvml.nvmlDeviceGetMemoryInfo_v2(dev, C.byref(m2))
    tap.ok(
        m2.total == int(total) == memory().total and m2.total == m2.reserved + m2.used + m2.free,
        "… on the size of the memory, which is the sum of its parts",
    )

    tap.ok(w.pid not in processes(), "a process without a context is not listed")
    before = memory().used
    w.do("context")
    tap.ok(until(lambda: w.pid in processes()), "a process with a context is listed")
    with_context = memory().used
    tap.ok(with_context > before, "the context takes memory")
    w.do(f"alloc {64 * MIB}")
    tap.ok(memory().used - with_context == 64 * MIB, "an allocation shows at once, in full")
    tap.ok(
        processes()[w.pid] >= 64 * MIB
        and processes() == processes(nvml.nvmlDeviceGetComputeRunningProcesses, ProcessV1),
        "and in the process's entry, in each version of the list",
    )
    free, _ = w.do("info").split()
    tap.ok(int(free) == memory().free, "CUDA and NVML agree on what is free")
    w.do("free")
    tap.ok(memory().used == with_context, "freed memory is free")

    w.do("start 1500")
    util = Utilization()
    tap.ok(
        until(lambda: nvml.nvmlDeviceGetUtilizationRates(dev, C.byref(util)) == SUCCESS and util.gpu > 30),
        "a running kernel shows as utilisation",
    )
    tap.ok(until(lambda: (s := sample_of(w.pid)) is not None and s.sm > 30), "and as its process's")
    last = sample_of(w.pid)
    tap.ok(
        last is not None and sample_of(w.pid, last.time + 60 * 10**6) is None and abs(last.time / 1e6 - time.time()) < 60,
        "samples carry the time of day, and older ones are left out",
    )
    w.do("wait")

    w.do(f"alloc {32 * MIB}")
    w.kill()
    tap.ok(until(lambda: w.pid not in processes() and memory().used == before), "a killed process leaves nothing behind")
    tap.ok(nvml.nvmlShutdown() == SUCCESS and nvml.nvmlShutdown() == 1, "nvmlShutdown")
    tap.exit()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2])
