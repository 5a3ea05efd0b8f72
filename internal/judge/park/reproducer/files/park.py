#!/usr/bin/env python3
"""park.py VMLINUZ INITRAMFS FOLDER: boot a kernel in qemu and lead its tasks through a schedule.

Each task is a process on a processor of its own: task 0 on processor 1, and so on. A breakpoint of
qemu's gdb stub stops that processor at the entry of a function, and the others go on without it. So
a task can be parked anywhere, and nothing in the guest is changed. Processor 0 is never parked: it
runs /init (repro.c), the kernel's workers and the interrupts. FOLDER is for temporary files.

Exit code: 1 the kernel breaks, 0 it keeps what it promises, 2 no verdict.
"""
import errno
import gzip
import os
import select
import socket
import subprocess
import sys
import time

# ---- The schedule. ----

TASKS = [[.TaskNames]]

# The steps, in their order: a task goes on through the places, and is parked at the last of them. A
# place is the entry of a function, the first of its names that the kernel has; "gate" is before
# each call of a task and after its last one. A task that waits gets to the last place in its next
# step: another task holds what it wants.
#   task, places, waits, where the model stands then
STEPS = [
[[range .Steps]]    [[.]]
[[end]]]

# What is violated: "sleeps", a NOWAIT call that sleeps; "deadlock", tasks that wait for each other;
# "error", an error that a call must not have; "end", a wrong file, as below. "" is a schedule that
# violates nothing and ends as below.
VIOLATION = "[[.Violation]]"

# The tasks that break, with the number of their call from 0. They go on after the last step; a
# NOWAIT call must not come to one of the SLEEPERS, which may all sleep.
VICTIMS = [[.Victims]]
SLEEPERS = [[.Sleepers]]

# The end in the model: error of each call, size of the file, and its bytes from, to, value.
ERRORS = [[.Errors]]
SIZE = [[.Size]]
BYTES = [[.Bytes]]

# ---- The machine. ----

GATE = "gate"
GATE_FUNCTION = "__x64_sys_getppid"
BOOT, LEAD = 600, 180  # seconds that a boot and the schedule may take; both are slow without KVM
TRIES = 3  # of a schedule whose guest does not answer any more
LOOKS = 6  # how often in a row a task is found asleep in an idle guest before it is said to sleep

# Of errors with two names, those of the manual pages.
ERROR_NAMES = {**errno.errorcode, errno.EAGAIN: "EAGAIN", errno.EOPNOTSUPP: "EOPNOTSUPP"}

# Processors are left to their tasks, nothing waits for an answer of all of them, and functions have
# the addresses of the kernel's file.
KERNEL_ARGS = ("console=ttyS0 quiet panic=-1 rdinit=/init nokaslr nohz=off irqaffinity=0 "
               "nowatchdog rcupdate.rcu_cpu_stall_suppress=1 mitigations=off "
               "transparent_hugepage=never rcupdate.rcu_normal=1 tsc=nowatchdog "
               "isolcpus=managed_irq,domain,1-%d" % len(TASKS))


class Hang(Exception):
    """The guest does not answer in time."""


class Fault(Exception):
    """There is no verdict, and another try would have none either."""


class Channel:
    """A socket whose input is read in parts: parts finds and removes the whole ones."""

    def __init__(self, sock):
        self.sock = sock
        self.data = b""
        self.ready = []

    def fill(self):
        data = self.sock.recv(65536)
        if not data:
            raise Fault("the guest has ended")
        self.data += data
        self.parts()


class Agent(Channel):
    """The lines of /init."""

    def parts(self):
        *lines, self.data = self.data.split(b"\n")
        self.ready += [line.decode(errors="replace") for line in lines]

    def say(self, text):
        self.sock.sendall(text.encode() + b"\n")


class Stub(Channel):
    """qemu's gdb stub. Processor N is thread N + 1."""

    def parts(self):
        while True:
            start = self.data.find(b"$")
            end = self.data.find(b"#", start)
            if start < 0 or end < 0 or len(self.data) < end + 3:
                return
            self.ready.append(self.data[start + 1:end].decode())
            self.data = self.data[end + 3:]
            self.sock.sendall(b"+")

    def send(self, text):
        self.sock.sendall(b"$%s#%02x" % (text.encode(), sum(text.encode()) & 255))

    def answer(self):
        self.sock.settimeout(60)
        try:
            while not self.ready:
                self.fill()
        except socket.timeout:
            raise Hang("the gdb stub does not answer")
        return self.ready.pop(0)

    def ask(self, text):
        self.send(text)
        return self.answer()

    def want_ok(self, text):
        answer = self.ask(text)
        if answer != "OK":
            raise Fault("the gdb stub answers %r with %r" % (text, answer))

    def begin(self):
        # The machine stops, and the stub may say so before it is asked.
        self.send("qSupported:vContSupported+")
        while not self.answer().startswith("PacketSize"):
            pass
        self.ask("?")

    def rip(self, cpu):
        self.want_ok("Hg%x" % (cpu + 1))
        registers = bytes.fromhex(self.ask("g"))
        return int.from_bytes(registers[16 * 8:17 * 8], "little")

    def step(self, cpu):
        """One processor executes one instruction. Where two came to breakpoints at once, the stub
        tells of a stop twice: what counts is that the processor has moved."""
        before = self.rip(cpu)
        for _ in range(16):
            self.ask("vCont;s:%x" % (cpu + 1))
            if self.rip(cpu) != before:
                return
        raise Hang("processor %d does not move" % cpu)


class Task:
    def __init__(self):
        self.held = False  # its processor stands still
        self.at = ""  # where it is parked; "" if it sleeps there
        self.target = [GATE]
        self.gates = 0  # that it has come to
        self.early = False  # it stands at the first place of its next step already
        self.expected = 1  # gates that its places until now have


class Machine:
    def __init__(self, kernel, initramfs, folder):
        disk, gdb = os.path.join(folder, "disk"), os.path.join(folder, "gdb")
        unpack(os.path.join(os.path.dirname(os.path.abspath(__file__)), "disk.img.gz"), disk)
        listener = listen(os.path.join(folder, "agent"))
        self.qemu = subprocess.Popen([
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max",
            "-smp", str(1 + len(TASKS)), "-m", "1500", "-nodefaults", "-no-reboot",
            "-display", "none", "-serial", "file:" + os.path.join(folder, "console"),
            "-kernel", kernel, "-initrd", initramfs, "-append", KERNEL_ARGS,
            "-drive", "if=none,id=disk,format=raw,cache=unsafe,file=" + disk,
            "-device", "virtio-blk-pci,drive=disk,num-queues=1",
            "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent",
            "-chardev", "socket,id=agent,path=" + listener.getsockname(),
            "-gdb", "unix:%s,server=on,wait=off" % gdb])
        try:
            self.agent, self.stub = Agent(accepted(listener)), None
            self.tasks = [Task() for _ in TASKS]
            self.running = True
            self.broken = {}  # address of a breakpoint: how often it is wanted
            self.looks = 0
            self.looking = False
            self.deadline = time.time() + BOOT
            self.release = self.line().split(" ", 1)[1]
            self.find_symbols()
            self.stub = Stub(socket.socket(socket.AF_UNIX))
            self.stub.sock.connect(gdb)
            self.stub.begin()
            self.running = False
        except BaseException:
            self.close()
            raise

    def close(self):
        self.qemu.kill()
        self.qemu.wait()

    # -- What /init says. --

    def event(self):
        """The next packet of the stub or line of /init, as ("stop" or "line", text)."""
        channels = [c for c in (self.stub, self.agent) if c]
        while not any(c.ready for c in channels):
            left = max(0, self.deadline - time.time())
            ready = select.select([c.sock for c in channels], [], [], left)[0]
            if not ready:
                raise Hang("the guest does not answer")
            for channel in channels:
                if channel.sock in ready:
                    channel.fill()
        if self.stub and self.stub.ready:
            return "stop", self.stub.ready.pop(0)
        line = self.agent.ready.pop(0)
        if line.startswith("error "):
            raise Fault("/init: " + line[len("error "):])
        return "line", line

    def line(self):
        while True:
            kind, text = self.event()
            if kind == "line" and not text.startswith("look "):
                return text

    def lines(self, text):
        self.agent.say(text)
        answer = []
        while not answer or answer[-1] != "ok":
            answer.append(self.line())
        return [line.split() for line in answer[:-1]]

    def find_symbols(self):
        names = {GATE_FUNCTION, *SLEEPERS}
        names.update(name for step in STEPS for place in step[1] for name in place.split())
        found = {}
        for _, name, address in self.lines("symbols " + " ".join(sorted(names))):
            found.setdefault(name, []).append(int(address, 16))
        self.address = {name: a[0] for name, a in found.items() if len(a) == 1}
        if GATE_FUNCTION not in self.address:
            raise Fault("the kernel has no function " + GATE_FUNCTION)
        self.address[GATE] = self.address.pop(GATE_FUNCTION)
        self.name = {a: name for name, a in self.address.items()}

    def function(self, place):
        """The first function of a place that the kernel has once, or None."""
        return next((n for n in place.split() if n in self.address), None)

    # -- Who runs, and who stands still. --

    def resume(self):
        if not self.running:
            held = self.held()
            cpus = [c for c in range(1 + len(self.tasks)) if c not in held]
            self.running = True
            self.stub.send("vCont" + "".join(";c:%x" % (c + 1) for c in cpus))

    def held(self):
        return [1 + i for i, t in enumerate(self.tasks) if t.held]

    def halt(self):
        while self.running:
            self.stub.sock.sendall(b"\x03")
            self.stopped(self.stub.answer())

    def stopped(self, packet):
        """A task at its target is parked; whoever else is at a breakpoint goes on."""
        self.running = False
        if packet[:3] != "T05":
            return  # not by a breakpoint
        thread = next(p for p in packet[3:].split(";") if p.startswith("thread:"))
        cpu = int(thread[len("thread:"):].split(".")[-1].lstrip("p"), 16) - 1
        rip = self.stub.rip(cpu)
        if rip not in self.broken:
            return
        if 1 <= cpu <= len(self.tasks):
            task = self.tasks[cpu - 1]
            if task.held:
                return
            name = self.name[rip]
            if name == GATE:
                task.gates += 1
            if name in task.target:
                task.held, task.at = True, name
                return
        self.stub.step(cpu)

    def break_at(self, name, more):
        address = self.address[name]
        before = self.broken.get(address, 0)
        self.broken[address] = before + more
        if before == 0:
            self.stub.want_ok("Z1,%x,1" % address)
        elif before + more == 0:
            del self.broken[address]
            self.stub.want_ok("z1,%x,1" % address)

    def aim(self, task, places):
        for name in places:
            self.break_at(name, 1)
        for name in task.target:
            self.break_at(name, -1)
        task.target = list(places)

    def let_go(self, number):
        task = self.tasks[number]
        at, task.held, task.at = task.at, False, ""
        if at:
            self.stub.step(1 + number)

    def start(self):
        """Start the tasks, each of which is parked at the gate before its first call."""
        self.break_at(GATE, len(self.tasks))
        self.resume()
        self.agent.say("start")
        started = False
        while not started or not all(t.held for t in self.tasks):
            self.resume()
            kind, text = self.event()
            if kind == "stop":
                self.stopped(text)
            started = started or text == "ok"
        self.halt()

    def advance(self, number, places):
        """Let a task go on until it comes to one of the places, where it is parked; None. Or, if it
        sleeps and nothing goes on that could wake it, the functions that it sleeps in."""
        task = self.tasks[number]
        self.aim(task, places)
        self.let_go(number)
        asleep = []
        while not task.held:
            self.resume()
            if not self.looking:
                self.looks += 1
                self.looking = True
                mask = sum(1 << cpu for cpu in self.held())
                self.agent.say("look %d %d %d" % (self.looks, number, mask))
            kind, text = self.event()
            if kind == "stop":
                self.stopped(text)
                asleep = []
                continue
            words = text.split()
            self.looking = False
            if int(words[1]) != self.looks:
                continue
            letter, idle, stack = words[2], words[3] == "1", words[4:]
            if letter == "Z":
                raise Fault("task %d has ended before %s" % (number, " or ".join(places)))
            if letter not in "DS" or not idle or timed(stack):
                asleep = []
            elif asleep and asleep[-1] != stack:
                asleep = [stack]
            else:
                asleep.append(stack)
            if len(asleep) == LOOKS:
                self.halt()
                if not task.held:
                    task.held, task.at = True, ""
                    return stack
        return None

    def end(self):
        """Let all tasks go on to their ends: (error of each call, size, bytes)."""
        for task in self.tasks:
            self.aim(task, [])
        for number in range(len(self.tasks)):
            self.let_go(number)
        self.resume()
        errors, size, content = [], 0, []
        for what, *words in self.lines("report"):
            if what == "call":
                value = int(words[2])
                errors.append(ERROR_NAMES.get(-value, str(-value)) if value < 0 else "")
            elif what == "size":
                size = int(words[0])
            elif what == "bytes":
                content.append(tuple(map(int, words)))
        return errors, size, content


def timed(stack):
    """The task sleeps for a time, and looks again."""
    return any(f.startswith("schedule_timeout_") or f in ("msleep", "hrtimer_nanosleep",
                                                          "usleep_range_state") for f in stack)


def listen(path):
    if os.path.exists(path):
        os.remove(path)
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen(1)
    return s


def accepted(listener):
    listener.settimeout(20)
    try:
        return listener.accept()[0]
    except socket.timeout:
        raise Fault("qemu does not start")


def unpack(source, target):
    """Unpack a disk; blocks of zeroes become holes."""
    zero = bytes(1 << 16)
    with gzip.open(source) as f, open(target, "wb") as out:
        while block := f.read(len(zero)):
            if block == zero[:len(block)]:
                out.seek(len(block), os.SEEK_CUR)
            else:
                out.write(block)
        out.truncate()


# ---- The lead. ----

def who(number):
    return "task %d (%s)" % (number, TASKS[number])


def take(machine, number, places, waits):
    """One step. What the task did, and why the order is refused, or None."""
    task = machine.tasks[number]
    said = "goes on by itself"
    functions = [f for f in map(machine.function, places) if f]
    for i, place in enumerate(functions):
        last_of_wait = waits and i == len(functions) - 1
        gate = place == GATE and not last_of_wait
        if gate:
            task.expected += 1
        if task.early:
            task.early = False
            continue
        if gate and task.gates >= task.expected:
            continue  # a call that has returned early has brought it here
        if task.at == GATE and task.gates > task.expected:
            said = "has returned without " + place
            continue
        stack = machine.advance(number, list(dict.fromkeys([place, GATE])))
        if stack is not None:
            if last_of_wait:
                return "waits in " + ", from ".join(stack[:2]), None
            return "waits", "%s does not come to %s: it waits in %s" % (
                who(number), place, " < ".join(stack))
        said = "has returned" if task.at == GATE else "stands at " + task.at
    if waits:
        task.early = True
        said += " (and does not wait)"
    return said, None


def press(machine):
    """The tasks go on that break in the model. How they do here."""
    sleepers = [f for f in SLEEPERS if f in machine.address]
    broken = []
    for number, call in VICTIMS:
        task = machine.tasks[number]
        if task.gates > 1 + call:
            continue  # its call has returned
        stack = machine.advance(number, [GATE] + sleepers)
        if stack is not None:
            broken.append("%s sleeps in %s" % (who(number), " < ".join(stack)))
        elif task.at != GATE:
            broken.append("%s comes to %s" % (who(number), task.at))
    return broken


def verdict(machine):
    """Lead the machine: (exit code, text)."""
    machine.deadline = time.time() + LEAD
    machine.start()
    refusal = None
    for number, places, waits, model in STEPS:
        said, refusal = take(machine, number, places, waits)
        print("  %s: %s\n      in the model it %s" % (who(number), said, model), flush=True)
        if refusal:
            break
    broken = [] if refusal else press(machine)
    if VIOLATION == "deadlock" and len(broken) == len(VICTIMS):
        return 1, "breaks: " + "; ".join(broken)
    errors, size, content = machine.end()
    end = "size %d, %s" % (size, ", ".join("call %d %s" % (i, e or "ok")
                                           for i, e in enumerate(errors, 1)))
    if refusal:
        return 0, "keeps: the order is refused: %s\nthe end: %s" % (refusal, end)
    if VIOLATION == "error":
        broken = ["call %d: %s" % (i, e) for i, (e, model) in enumerate(zip(errors, ERRORS), 1)
                  if e and e == model]
    same = (errors, size, content) == (ERRORS, SIZE, BYTES)
    if VIOLATION == "end" and same:
        broken = ["the file is as wrong as the model's: bytes %s" % content]
    if VIOLATION == "" and not same:
        broken = ["bytes %s, want size %d, errors %s, bytes %s" % (content, SIZE, ERRORS, BYTES)]
    if broken and VIOLATION != "deadlock":
        return 1, "breaks: %s\nthe end: %s" % ("; ".join(broken), end)
    return 0, "keeps: the end: " + end


def main(kernel, initramfs, folder):
    for attempt in range(1, TRIES + 1):
        machine = None
        try:
            print("booting %s (half a minute, or some)" % kernel, flush=True)
            machine = Machine(kernel, initramfs, folder)
            print("Linux %s" % machine.release, flush=True)
            code, text = verdict(machine)
            print(text)
            return code
        except (Hang, Fault, OSError) as e:
            again = isinstance(e, Hang) and attempt < TRIES
            sys.stderr.write("%spark.py: %s: %s\n" % (
                last_words(folder), "begun again" if again else "no verdict", e))
            if not again:
                return 2
        except KeyboardInterrupt:
            sys.stderr.write("park.py: no verdict: interrupted\n")
            return 2
        finally:
            if machine:
                machine.close()


def last_words(folder):
    try:
        with open(os.path.join(folder, "console"), errors="replace") as f:
            return "".join("  console: %s\n" % line.rstrip() for line in f.readlines()[-12:])
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
