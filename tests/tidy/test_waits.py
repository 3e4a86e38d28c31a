"""Nothing can wait for ever, nothing spins, and nothing runs behind the caller's back.

The rules know calls by their names, so they are stricter than the truth: a call that is fine for a reason they can't
see is named in `ALLOWED`, with that reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tidy.source_tree import Call, Finding, Source, calls, check, package_sources, parse, unused

ALLOWED = {
    ("process/leash.py", "put_on: os.read"): "the descriptor was made non-blocking in the line before",
    ("process/leash.py", "_kill_own_group_at_end_of: os.read"): "a thread of its own; bounded by the parent's life",
    ("process/leash.py", "_ask_for_death_with: daemon"): "macOS: it may not keep a worker alive that is done",
    ("transport/bell.py", "_receive_with_fds: end.recvmsg"): "the bell's socket is non-blocking",
}
"""(file, function: call as written) to the reason why it cannot wait for ever, or may run on."""

NEEDS_BOUND = {"join", "wait", "get", "result", "exception", "communicate", "acquire", "read", "shutdown", "select"}
"""Methods that wait for ever without an argument, and not with one that is a bound."""

NEEDS_NAMED_BOUND = {
    *("recv", "recv_into", "recvfrom", "recvmsg", "recv_bytes", "recv_fds", "accept", "readline", "readinto"),
    *("create_connection", "urlopen", "as_completed"),
}
"""Calls whose other arguments say nothing about time, so one of them must be named after it."""

SUBPROCESS = {"run", "call", "check_call", "check_output"}
"""The same, for functions of `subprocess`; others of these names are somebody's own."""

NEEDS_NO_HANG = {
    **dict.fromkeys(("waitpid", "waitid", "wait3", "wait4"), "WNOHANG"),
    **dict.fromkeys(("flock", "lockf"), "LOCK_NB"),
}
"""System calls that wait for ever without this flag."""

NEVER_ENDS = {
    "wait": {"os.wait"},
    "read": {"os.read"},
    "readv": {"os.readv"},
    "pause": {"signal.pause"},
    "sigwait": {"signal.sigwait"},
    "sigwaitinfo": {"signal.sigwaitinfo"},
    "input": {"input"},
}
"""Functions that take no bound at all, by their last name."""

BOUND = re.compile(r"deadline|timeout|within|\bdue|_s\b|blocking=False|block=False|DONTWAIT")
ZERO = re.compile(r"(timeout=)?0(\.0)?")
SPINS = re.compile(r"_nowait$|^try_")
ONLY_WAITING_MAY = {"select", "selectors"}
WAITING = "core/waiting.py"


def find_endless_waits(source: Source) -> Iterator[tuple[str, Finding]]:
    """Yield each call that could wait for ever, with the words that allow it."""
    for call in calls(source):
        if _can_wait_for_ever(call):
            problem = f"{call.function} calls {call.text}({', '.join(call.arguments)}), which can wait for ever"
            remedy = "give it a Deadline or a time-out, or allow it here with the reason why it is bounded"
            yield f"{call.function}: {call.text}", Finding(source.path, call.node.lineno, problem, remedy)


def _can_wait_for_ever(call: Call) -> bool:
    if call.text in NEVER_ENDS.get(call.name, ()):
        return True
    if call.name in NEEDS_NO_HANG:
        return NEEDS_NO_HANG[call.name] not in " ".join(call.arguments)
    if call.name in SUBPROCESS and not call.text.startswith("subprocess."):
        return False
    if call.name not in NEEDS_BOUND | NEEDS_NAMED_BOUND | SUBPROCESS:
        return False
    arguments = " ".join(call.arguments)
    if _is_unbounded(arguments):
        return True
    if call.name == "select" and call.text.startswith("select."):  # three lists come before the time
        return len(call.arguments) < 4
    takes_more_than_time = call.name not in NEEDS_BOUND or call.name == "communicate"
    return takes_more_than_time and not BOUND.search(arguments)


def _is_unbounded(arguments: str) -> bool:
    """Whether the arguments leave the time open: there are none, or they say so."""
    return arguments in ("", "None", "True") or bool(re.search(r"(timeout|within_s|deadline)=None", arguments))


def find_spinning(source: Source) -> Iterator[tuple[str, Finding]]:
    """Yield each call that asks without waiting, again and again in a `while`, and each sleep."""
    for call in calls(source):
        asks = call.name in ("poll", "wait", "select") and ZERO.fullmatch(" ".join(call.arguments))
        if call.repeated and (asks or SPINS.search(call.name)):
            problem = f"{call.function} calls {call.text}({', '.join(call.arguments)}) in a `while`: a busy loop"
            remedy = "wait for it with core/waiting.py"
            yield f"{call.function}: {call.text}", Finding(source.path, call.node.lineno, problem, remedy)
        if call.name == "sleep":
            problem = f"{call.function} sleeps"
            remedy = "wait for what it is waiting for, with core/waiting.py"
            yield f"{call.function}: {call.text}", Finding(source.path, call.node.lineno, problem, remedy)


def find_hidden_life(source: Source) -> Iterator[tuple[str, Finding]]:
    """Yield daemon threads, exit hooks, finalizers and shared queues or pools: all that acts without being called."""
    for call in calls(source):
        text = call.text
        daemons = [
            keyword for keyword in call.node.keywords if keyword.arg == "daemon" and "False" not in ast.unparse(keyword)
        ]
        if daemons:
            yield (
                f"{call.function}: daemon",
                Finding(
                    source.path,
                    call.node.lineno,
                    f"{call.function} starts a daemon thread",
                    "give it an owner that ends it",
                ),
            )
        if text.startswith("atexit."):
            yield (
                f"{call.function}: {text}",
                Finding(source.path, call.node.lineno, f"{call.function} calls {text}", "release it in a `with` block"),
            )
    for node in ast.walk(source.tree):
        match node:
            case ast.FunctionDef(name="__del__"):
                yield (
                    "__del__",
                    Finding(source.path, node.lineno, "a finalizer", "release it in close(), in a `with` block"),
                )
            case ast.Assign(targets=[ast.Attribute(attr="daemon")]):
                yield "daemon", Finding(source.path, node.lineno, "a daemon thread", "give it an owner that ends it")
        for name in _imported(node):
            if name.split(".")[0] == "multiprocessing" or name.startswith("concurrent.futures"):
                remedy = "a process goes through process/child.py, data through transport"
                yield name, Finding(source.path, getattr(node, "lineno", 1), f"imports {name}", remedy)
            if name.split(".")[0] == "atexit":
                yield (
                    name,
                    Finding(source.path, getattr(node, "lineno", 1), "imports atexit", "release it in a `with` block"),
                )


def find_waiting_elsewhere(source: Source) -> Iterator[tuple[str, Finding]]:
    """Yield each import of what one can block with, outside the one module that may."""
    if source.in_package == WAITING:
        return
    for node in ast.walk(source.tree):
        for name in _imported(node):
            if name.split(".")[0] in ONLY_WAITING_MAY:
                problem = f"imports {name}, to wait with"
                yield name, Finding(source.path, getattr(node, "lineno", 1), problem, f"only {WAITING} waits; call it")


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [f"{module}.{alias.name}" for alias in names]
    return []


RULES = (find_endless_waits, find_spinning, find_hidden_life, find_waiting_elsewhere)


def test_nothing_waits_for_ever_spins_or_lives_on_its_own() -> None:
    met: set[tuple[str, str]] = set()
    findings: list[Finding] = []
    for source in package_sources():
        for rule in RULES:
            for what, finding in rule(source):
                met.add((source.in_package, what))
                if (source.in_package, what) not in ALLOWED:
                    findings.append(finding)

    check([*findings, *unused(ALLOWED, met)])


@pytest.mark.parametrize(
    "line",
    [
        "thread.join()",
        "thread.join(None)",
        "thread.join(timeout=None)",
        "process.wait()",
        "process.communicate()",
        "process.communicate(b'input')",
        "queue.get()",
        "queue.get(True)",
        "queue.get(block=True, timeout=None)",
        "future.result()",
        "lock.acquire()",
        "lock.acquire(True)",
        "stream.read()",
        "os.read(fd, 1)",
        "socket.recv(16)",
        "socket.recvmsg(16, 32)",
        "connection.recv()",
        "server.accept()",
        "select.select([a], [], [])",
        "selector.select()",
        "os.waitpid(pid, 0)",
        "os.wait()",
        "fcntl.flock(fd, fcntl.LOCK_EX)",
        "subprocess.run(['ls'])",
        "subprocess.check_output(['ls'])",
        "socket.create_connection(address)",
        "signal.pause()",
        "executor.shutdown()",
    ],
)
def test_a_wait_without_a_bound_is_caught(line: str) -> None:
    assert list(find_endless_waits(parse(line))), line


@pytest.mark.parametrize(
    "line",
    [
        "', '.join(names)",
        "settings.get('name')",
        "settings.get('name', None)",
        "thread.join(1.0)",
        "process.wait(timeout=self.grace_s)",
        "process.communicate(timeout=5)",
        "process.communicate(b'input', timeout=5)",
        "future.result(timeout=deadline.left_s)",
        "lock.acquire(blocking=False)",
        "lock.acquire(timeout=0)",
        "waiter.wait(deadline)",
        "envs.recv(1, deadline)",
        "envs.recv(min_envs=1, within_s=5.0)",
        "select.select([a], [], [], 1.0)",
        "selector.select(deadline.left_s)",
        "os.waitpid(pid, os.WNOHANG)",
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "subprocess.run(['ls'], timeout=5)",
        "training.run(config)",
    ],
)
def test_a_wait_with_a_bound_is_fine(line: str) -> None:
    assert not list(find_endless_waits(parse(line))), line


@pytest.mark.parametrize(
    "text",
    [
        "while True:\n    queue.get_nowait()",
        "while not pipe.poll(0):\n    pass",
        "while waiting:\n    for pipe in pipes:\n        pipe.poll(timeout=0)",
        "time.sleep(0.1)",
        "from time import sleep\nsleep(1)",
    ],
)
def test_a_busy_loop_or_a_sleep_is_caught(text: str) -> None:
    assert list(find_spinning(parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "queue.get_nowait()",
        "while True:\n    def later():\n        queue.get_nowait()",
        "while True:\n    process.poll()",
    ],
)
def test_asking_once_is_fine(text: str) -> None:
    assert not list(find_spinning(parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "Thread(target=f, daemon=True)",
        "thread.daemon = True",
        "import atexit",
        "from atexit import register",
        "class A:\n    def __del__(self):\n        pass",
        "import multiprocessing",
        "import multiprocessing as mp",
        "from multiprocessing import Queue",
        "def f():\n    from multiprocessing.pool import ThreadPool",
        "from concurrent.futures import ProcessPoolExecutor",
    ],
)
def test_what_lives_on_its_own_is_caught(text: str) -> None:
    assert list(find_hidden_life(parse(text)))


def test_a_second_module_that_blocks_is_caught() -> None:
    assert list(find_waiting_elsewhere(parse("import select")))
    assert not list(find_waiting_elsewhere(parse("import selectors", f"src/stepherd/{WAITING}")))


def test_an_allowance_that_nobody_needs_is_caught() -> None:
    assert list(unused({("core/deadline.py", "f: os.read"): "non-blocking"}, []))
