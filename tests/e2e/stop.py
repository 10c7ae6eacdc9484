"""Stops a program at a moment that a test has chosen. Here and not in case.py, which wants its arguments."""
import signal
import time


def stop_when(process, ready):
    """Stops a process as soon as something is true of it. It runs for some milliseconds at a time and is stopped while that is looked at:
    a busy machine that looks late finds it where it was, and not over."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        if ready():
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.005)
    raise AssertionError(f"it ended too soon: {process.communicate()}")
