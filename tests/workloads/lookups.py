# SPDX-License-Identifier: Apache-2.0
"""The driver from Python, by ctypes alone: lookups.py [--limit BYTES]. Prints TAP."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading

MIB = 1 << 20
OUT_OF_MEMORY = 2

limit = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[1] == "--limit" else 0
failures = []


def check(got, want, what):
    if got != want:
        failures.append(f"{what} is {got}, not {want}")


def load(name):
    lib = ctypes.CDLL(name)
    # Without this a 64-bit address in an argument is cut to an int.
    lib.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
    lib.cuMemFree_v2.argtypes = [ctypes.c_uint64]
    lib.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
    lib.cuMemcpyDtoH_v2.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_size_t]
    return lib


def open_card(lib):
    context = ctypes.c_void_p()
    device = ctypes.c_int(-1)
    check(lib.cuInit(0), 0, "cuInit")
    check(lib.cuDeviceGet(ctypes.byref(device), 0), 0, "cuDeviceGet")
    check(lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), 0, "cuDevicePrimaryCtxRetain")
    check(lib.cuCtxSetCurrent(context), 0, "cuCtxSetCurrent")


def use(lib):
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(lib.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)), 0, "cuMemGetInfo")
    if limit:
        check(total.value, limit, "the total")
    check(left.value <= total.value, True, "free <= total")
    p = ctypes.c_uint64()
    check(lib.cuMemAlloc_v2(ctypes.byref(p), MIB), 0, "cuMemAlloc")
    data = os.urandom(1000)
    back = ctypes.create_string_buffer(1000)
    check(lib.cuMemcpyHtoD_v2(p.value + 1234, data, 1000), 0, "cuMemcpyHtoD")
    check(lib.cuMemcpyDtoH_v2(back, p.value + 1234, 1000), 0, "cuMemcpyDtoH")
    check(back.raw == data, True, "what was written")
    q = ctypes.c_uint64()
    check(lib.cuMemAlloc_v2(ctypes.byref(q), total.value), OUT_OF_MEMORY, "cuMemAlloc of everything")
    check(lib.cuMemFree_v2(p.value), 0, "cuMemFree")


def whole(name="libcuda.so.1"):
    lib = load(name)
    open_card(lib)
    use(lib)


def in_child():
    failures.clear()
    whole()
    if failures:
        print("# in a child:", *failures, sep="\n# ", flush=True)
        sys.exit(1)


def names():
    for name in "libcuda.so.1", "libcuda.so":
        whole(name)


def lookup_function():
    """By a pointer, as bindings that are generated do."""
    lib = load("libcuda.so.1")
    fn = ctypes.c_void_p()
    status = ctypes.c_int()
    get = lib.cuGetProcAddress_v2
    get.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
    check(get(b"cuMemGetInfo", ctypes.byref(fn), 13000, 0, ctypes.byref(status)), 0, "cuGetProcAddress")
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    info = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(fn.value)
    open_card(lib)
    check(info(ctypes.byref(left), ctypes.byref(total)), 0, "cuMemGetInfo by pointer")
    if limit:
        check(total.value, limit, "the total")


def threads():
    def work():
        open_card(lib)
        use(lib)

    lib = load("libcuda.so.1")
    started = [threading.Thread(target=work) for _ in range(8)]
    for t in started:
        t.start()
    for t in started:
        t.join()


def processes():
    """Children that are copies of a process in which the library is open, and ones that are started anew."""
    for how in "fork", "spawn", "forkserver":
        context = multiprocessing.get_context(how)
        started = [context.Process(target=in_child) for _ in range(3)]
        for p in started:
            p.start()
        for p in started:
            p.join()
            check(p.exitcode, 0, f"a child by {how}")


def commands():
    done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "once"], check=False)
    check(done.returncode, 0, "a command")


TESTS = [
    ("first in children", processes),
    ("both names", names),
    ("a pointer that was looked up", lookup_function),
    ("threads", threads),
    ("children", processes),
    ("a command", commands),
]


def main():
    if sys.argv[-1] == "once":
        in_child()
        return 0
    failed = 0
    print(f"1..{len(TESTS)}", flush=True)
    for number, (text, test) in enumerate(TESTS, 1):
        failures.clear()
        test()
        for line in failures:
            print("#", line)
        print(f"{'not ' if failures else ''}ok {number} - {text}", flush=True)
        failed += bool(failures)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
