#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs in vgpus that live beside each other: limits changed, neighbours killed, the daemon killed. TAP.

Arguments: the aliquot command, limit-hold. Starts itself again on a private software card.
"""
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
OOM = "CUDA_ERROR_OUT_OF_MEMORY"
ALIQUOT, HOLD = sys.argv[1:3]


class Program:
    """limit-hold in a vgpu, spoken to."""

    def __init__(self, *options, visible=None):
        environment = dict(os.environ)
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        self.process = subprocess.Popen(
            [ALIQUOT, "run", *options, "--", HOLD],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )
        self.started = self.process.stdout.readline().strip()

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def do(self, line):
        self.say(line)
        return self.hear()

    def info(self):
        return tuple(int(n) for n in self.do("info").split())

    def end(self):
        self.process.stdin.close()
        return self.process.wait(20)


def aliquot(*arguments, status=0):
    done = subprocess.run([ALIQUOT, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == status, f"{arguments}: status {done.returncode}: {done.stderr}"
    return done


def vgpu(name):
    return json.loads(aliquot("ps", name, "--json").stdout)["vgpus"][0]


def card(name):
    return vgpu(name)["cards"][0]


def wait_for(what, seconds=10):
    deadline = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def private_folder():
    parent = os.path.join(os.environ["XDG_RUNTIME_DIR"], "aliquot")
    return [os.path.join(parent, d) for d in os.listdir(parent) if d.startswith("daemon-")][0]


def ask(request):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(os.path.join(private_folder(), "control.sock"))
        text = json.dumps(request).encode()
        s.sendall(struct.pack("<I", len(text)) + text)
        f = s.makefile("rb")
        return json.loads(f.read(struct.unpack("<I", f.read(4))[0]))


def daemon_pid():
    return ask({"op": "version"})["pid"]


def live_client(name):
    """The pid that the daemon has for the program in a vgpu."""
    return wait_for(lambda: [c["pid"] for c in vgpu(name)["clients"] if c["state"] == "attached"])[0]


# ---------------------------------------------------------------------------------------------- the tests


def neighbour_unharmed():
    quiet = Program("--mem", "200MiB", "--vgpu", "quiet")
    greedy = Program("--mem", "200MiB", "--vgpu", "greedy")
    assert quiet.do(f"alloc {100 * MIB}") == "ok"
    before = quiet.info()
    taken = int(greedy.do(f"fill {8 * MIB}"))
    assert 150 * MIB < taken <= 200 * MIB, taken
    for _ in range(50):
        assert greedy.do(f"alloc {40 * MIB}") == OOM
    assert greedy.do("check") == "ok"
    assert quiet.info() == before
    assert vgpu("greedy")["refusals"]["count"] >= 51
    assert vgpu("quiet")["refusals"]["count"] == 0
    # Killed in the middle of it.
    greedy.say("race 4")
    os.kill(live_client("greedy"), signal.SIGKILL)
    assert greedy.process.wait(20) == 128 + signal.SIGKILL
    assert quiet.do("check") == "ok" and quiet.info() == before
    assert quiet.do(f"alloc {50 * MIB}") == "ok" and quiet.do("check") == "ok"
    assert quiet.end() == 0


def killed_gives_back():
    aliquot("create", "mortal", "--mem", "200MiB")
    first = Program("--vgpu", "mortal")
    assert int(first.do(f"fill {8 * MIB}")) > 150 * MIB
    os.kill(live_client("mortal"), signal.SIGKILL)
    first.process.wait(20)
    wait_for(lambda: card("mortal")["free_bytes"] == 200 * MIB)
    second = Program("--vgpu", "mortal")
    assert int(second.do(f"fill {8 * MIB}")) > 150 * MIB
    assert second.end() == 0
    aliquot("rm", "mortal")


def live_limits():
    aliquot("create", "live", "--mem", "100MiB")
    p = Program("--vgpu", "live")
    assert p.do(f"alloc {60 * MIB}") == "ok"
    assert p.do(f"alloc {60 * MIB}") == OOM
    free, total = p.info()
    assert total == 100 * MIB
    aliquot("set", "live", "--mem", "200MiB")
    assert p.info() == (free + 100 * MIB, 200 * MIB)
    assert p.do(f"alloc {60 * MIB}") == "ok"
    # Below what it holds: nothing is taken away, nothing more is given.
    done = aliquot("set", "live", "--mem", "80MiB")
    assert "more than its new limit" in done.stderr, done.stderr
    assert p.info() == (0, 80 * MIB)
    assert p.do(f"alloc {2 * MIB}") == OOM and p.do("check") == "ok"
    assert p.do("free") == "ok"
    assert p.info()[0] == free - 20 * MIB, p.info()
    assert p.do(f"alloc {free - 20 * MIB}") == "ok" and p.do(f"alloc {2 * MIB}") == OOM
    # More than there is: refused, and nothing has changed.
    done = aliquot("set", "live", "--mem", "3GiB", status=1)
    assert "GPU 0" in done.stderr, done.stderr
    assert p.info()[1] == 80 * MIB
    assert p.end() == 0
    aliquot("rm", "live")


def shared_by_two():
    aliquot("create", "both", "--mem", "200MiB")
    one, two = Program("--vgpu", "both"), Program("--vgpu", "both")
    assert one.do(f"alloc {100 * MIB}") == "ok"
    assert two.do(f"alloc {100 * MIB}") == OOM
    taken = int(two.do(f"fill {2 * MIB}"))
    c = card("both")
    assert c["used_bytes"] == 100 * MIB + taken
    assert c["used_bytes"] + c["overhead_bytes"] <= 200 * MIB
    # Each sees the same, as two programs on one GPU do.
    assert one.info() == two.info()
    assert len(vgpu("both")["clients"]) == 2
    assert one.do("free") == "ok" and two.do(f"alloc {90 * MIB}") == "ok"
    assert one.end() == 0 and two.end() == 0
    aliquot("rm", "both")


def race():
    aliquot("create", "race", "--mem", "300MiB")
    programs = [Program("--vgpu", "race") for _ in range(4)]
    for p in programs:
        p.say("race 4")
    most = 0
    for _ in range(20):
        c = card("race")
        # Pending bytes are asked for, not held: one that waits may be refused.
        most = max(most, c["used_bytes"])
        assert c["used_bytes"] <= 300 * MIB, c
        time.sleep(0.02)
    assert [p.hear() for p in programs] == ["ok"] * 4
    for p in programs:
        p.say(f"fill {2 * MIB}")
    held = sum(int(p.hear()) for p in programs)
    c = card("race")
    assert c["used_bytes"] == held and c["pending_bytes"] == 0
    assert 300 * MIB - 2 * MIB < held + c["overhead_bytes"] <= 300 * MIB, (held, c)
    assert [p.end() for p in programs] == [0] * 4
    aliquot("rm", "race")


def daemon_killed():
    aliquot("create", "lasting", "--mem", "200MiB")
    p = Program("--vgpu", "lasting")
    own = Program("--mem", "100MiB", "--vgpu", "passing")
    assert p.do(f"alloc {100 * MIB}") == "ok" and own.do(f"alloc {20 * MIB}") == "ok"
    before = p.info()
    pid = daemon_pid()
    os.kill(pid, signal.SIGKILL)
    # Nobody waits for it: limits are in the pages.
    assert p.do(f"alloc {20 * MIB}") == "ok" and p.do(f"alloc {100 * MIB}") == OOM
    assert p.do("free") == "ok" and p.info() == before
    wait_for(lambda: subprocess.run([ALIQUOT, "ps"], capture_output=True).returncode == 0)
    assert daemon_pid() != pid
    for name, used in (("lasting", 100), ("passing", 20)):
        wait_for(lambda: [c["state"] for c in vgpu(name)["clients"]] == ["attached"])
        assert card(name)["used_bytes"] == used * MIB, card(name)
    assert p.info() == before and p.do("check") == "ok"
    aliquot("set", "lasting", "--mem", "300MiB")
    wait_for(lambda: p.info()[1] == 300 * MIB)
    assert p.do(f"alloc {150 * MIB}") == "ok" and p.do(f"alloc {100 * MIB}") == OOM
    late = Program("--vgpu", "lasting")
    assert late.started == "ok" and late.do(f"alloc {100 * MIB}") == OOM
    assert [x.end() for x in (p, own, late)] == [0, 0, 0]
    # Its own vgpu goes with it, although the daemon is another one now.
    wait_for(lambda: "passing" not in aliquot("ps").stdout)
    aliquot("rm", "lasting")


def frozen():
    aliquot("create", "ice", "--mem", "100MiB")
    p = Program("--vgpu", "ice")
    aliquot("freeze", "ice")
    assert vgpu("ice")["state"] == "frozen"
    assert "frozen" in aliquot("why", "ice").stdout
    p.say("info")
    state = open(f"/proc/{live_client('ice')}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()[0]
    assert state == "T", state
    aliquot("thaw", "ice")
    assert len(p.hear().split()) == 2
    assert p.end() == 0
    aliquot("rm", "ice")


def told():
    aliquot("create", "story", "--mem", "100MiB")
    p = Program("--vgpu", "story")
    assert p.do(f"alloc {150 * MIB}") == OOM
    why = aliquot("why", "story").stdout
    assert "150 MiB" in why and "refused" in why, why
    answer = json.loads(aliquot("why", "story", "--json").stdout)
    assert answer["vgpu"]["refusals"]["last_bytes"] == 150 * MIB and answer["reasons"]
    table = aliquot().stdout
    assert re.search(r"^story +0 +100 MiB .* 1  ready$", table, re.M), table
    assert "limit-hold" in table and "GPU  NAME" in table
    done = aliquot("rm", "story", status=1)
    assert "--force kills" in done.stderr, done.stderr
    aliquot("rm", "--force", "story")
    assert p.process.wait(20) == 128 + signal.SIGKILL
    assert "created" in aliquot("log", "story").stdout


def random_kills():
    """Whenever a program is killed, its bytes come back, all of them, and no more."""
    chance = random.Random(1)
    aliquot("create", "deadly", "--mem", "300MiB")
    survivor = Program("--vgpu", "deadly")
    assert survivor.do(f"alloc {20 * MIB}") == "ok"
    before = survivor.info()
    for _ in range(8):
        programs = [Program("--vgpu", "deadly") for _ in range(4)]
        for p in programs:
            p.say(f"fill {2 * MIB}")
            p.say("race 3")
        time.sleep(chance.uniform(0, 0.15))
        pids = [c["pid"] for c in vgpu("deadly")["clients"] if c["state"] == "attached"]
        for pid in chance.sample(pids, len(pids)):
            if pid != survivor_pid(survivor):
                os.kill(pid, signal.SIGKILL)
        for p in programs:
            p.process.wait(20)
        wait_for(lambda: survivor.info() == before)
    c = card("deadly")
    assert (c["used_bytes"], c["pending_bytes"], c["releasing_bytes"]) == (20 * MIB, 0, 0), c
    assert survivor.do("check") == "ok" and survivor.end() == 0
    wait_for(lambda: card("deadly")["free_bytes"] == 300 * MIB)
    aliquot("rm", "deadly")


def survivor_pid(program):
    """The child of `aliquot run`."""
    with open(f"/proc/{program.process.pid}/task/{program.process.pid}/children", encoding="ascii") as f:
        return int(f.read().split()[0])


def one_after_another():
    """What a program had is there for the next one at once."""
    aliquot("create", "queue", "--mem", "100MiB")
    for options in (("--vgpu", "queue"), ("--mem", "500MiB", "--card", "1"), ("--mem", "500MiB", "--card", "1")):
        for _ in range(3):
            p = Program(*options)
            assert p.started == "ok" and p.do(f"alloc {80 * MIB}") == "ok", options
            assert p.end() == 0
    aliquot("rm", "queue")


def two_cards():
    aliquot("create", "pair", "--card", "0=100MiB", "--card", "1=200MiB")
    second = vgpu("pair")["cards"][1]["uuid"]
    for visible, mib, used in ((None, 100, 0), ("0", 100, 0), ("1", 200, 1), ("1,0", 200, 1), (second, 200, 1)):
        p = Program("--vgpu", "pair", visible=visible)
        assert p.started == "ok", (visible, p.started)
        assert p.info()[1] == mib * MIB, (visible, p.info())
        assert p.do(f"alloc {80 * MIB}") == "ok"
        assert p.do(f"alloc {mib * MIB}") == OOM
        cards = vgpu("pair")["cards"]
        assert cards[used]["used_bytes"] == 80 * MIB and cards[1 - used]["used_bytes"] == 0, (visible, cards)
        assert p.end() == 0
    hidden = Program("--vgpu", "pair", visible="")
    assert hidden.started == "CUDA_ERROR_NO_DEVICE", hidden.started
    hidden.process.wait(20)
    # One that is not in the vgpu cannot be named into it.
    aliquot("create", "single", "--card", "0", "--mem", "100MiB")
    for visible in ("1", second):
        outside = Program("--vgpu", "single", visible=visible)
        assert outside.started == "CUDA_ERROR_NO_DEVICE", (visible, outside.started)
        outside.process.wait(20)
    aliquot("rm", "pair", "single")


def does_not_fit():
    aliquot("create", "large", "--mem", "800MiB", "--card", "0")
    done = aliquot("run", "--mem", "400MiB", "--card", "0", "--", "true", status=125)
    assert "GPU 0 has" in done.stderr and "are wanted" in done.stderr, done.stderr
    done = aliquot("run", "--vgpu", "large", "--mem", "10", "--", "true", status=125)
    assert "exists" in done.stderr, done.stderr
    aliquot("rm", "large")
    assert aliquot("run", "--mem", "400MiB", "--", "true").stdout == ""


TESTS = [
    neighbour_unharmed, killed_gives_back, live_limits, shared_by_two, race, random_kills, one_after_another, two_cards, daemon_killed, frozen, told,
    does_not_fit,
]


def main():
    if "AQ_LIMIT_LIVE" not in os.environ:
        with tempfile.TemporaryDirectory() as place:
            os.environ.update(AQ_LIMIT_LIVE="1", XDG_RUNTIME_DIR=place, ALIQUOT_DAEMON="")
            again = [ALIQUOT, "soft", "--profile", "card-1g", "--cards", "2", "--", sys.executable, *sys.argv]
            return subprocess.run(again).returncode
    only = sys.argv[3:]
    failed = 0
    print(f"1..{len(TESTS)}", flush=True)
    # One that stays keeps the private daemon between the tests.
    aliquot("create", "keeps", "--mem", "1MiB", "--card", "0")
    for n, test in enumerate(TESTS, 1):
        began = time.monotonic()
        try:
            if not only or test.__name__ in only:
                test()
            print(f"ok {n} - {test.__name__}", flush=True)
        except Exception as e:  # the others go on
            failed += 1
            line = e.__traceback__
            while line.tb_next and line.tb_next.tb_frame.f_code.co_filename == __file__:
                line = line.tb_next
            print(f"# line {line.tb_lineno}: {type(e).__name__}: {e}".replace("\n", "\n# "))
            print(f"not ok {n} - {test.__name__}", flush=True)
        print(f"# {time.monotonic() - began:.1f} s", flush=True)
    subprocess.run([ALIQUOT, "rm", "--force", "keeps"], capture_output=True)
    return failed > 0


sys.exit(main())
