import multiprocessing
import os
import subprocess
import sys

from shop import child, spawned


def test_a_python_that_is_started():
    done = subprocess.run([sys.executable, "-S", "-m", "shop.child", "4"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "8"


def in_fork(function):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, str(function()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        return stream.read()


def test_a_fork():
    assert in_fork(lambda: child.work(2)) == "4"


def test_a_fork_that_reads():
    assert in_fork(lambda: child.read("forked.txt")) == "forked\n"


def test_a_forked_process():
    assert in_process("fork", child.work, 5) == 10


def test_a_spawned_process():
    assert in_process("spawn", spawned.far, 5) == 15


def in_process(method, function, number):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply(function, (number,))
