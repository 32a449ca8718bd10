"""The last step before a child's own program: `python -I -S launch.py SPEC PROGRAM ARGUMENT…`.

It runs in the child's process, and is a program of its own because each step must come after the one before, in
this very process: write the record that lets a later start find it, change the user, *then* ask for a signal at the
parent's death (a change of user clears it), then see whether the parent died meanwhile, then become the program.
Nothing of the project is imported: the interpreter runs isolated.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    program = sys.argv[2:]
    if spec["record"]:
        _write_record(spec["record"], spec["stop_signal"])
    if spec["uid"] is not None:
        _become(spec["uid"], spec["gid"], keep_search=spec["search"])
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, spec["death_signal"])
    if os.getppid() != spec["parent"]:
        sys.exit("The supervisor died while this child was being started.")
    # Python ignores SIGPIPE, and an ignored signal stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(program[0], program)  # noqa: S606
    except OSError as error:
        sys.exit(f"Can't run {program[0]}: {error.strerror}")


def identity(pid: int) -> str | None:
    """What tells a process from a later one with the same number; None when there is no such process."""
    if sys.platform != "linux":
        shown = subprocess.run(
            ["/bin/ps", "-o", "lstart=,stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        return None if not shown or shown[-1].startswith("Z") else " ".join(shown[:-1])
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            # The name in parentheses may hold anything, so count from the last one.
            fields = file.read().rpartition(")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            boot = file.read().strip()
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}/{started}"


def _write_record(path: str, stop_signal: int) -> None:
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"pid": os.getpid(), "identity": identity(os.getpid()), "stop_signal": stop_signal}, file)
    os.replace(temporary, path)  # noqa: PTH105


def _become(uid: int, gid: int, *, keep_search: bool) -> None:
    if keep_search:
        # The change of user then leaves the capabilities alone, and access(2) counts them.
        _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    os.environ["HOME"] = "/"
    if keep_search:
        _keep_search()


def _keep_search() -> None:
    """Let this user pass through directories that are closed to it, such as /root above the data directory."""
    if sys.platform != "linux":
        sys.exit("This user can't pass through the directories above its data: choose another place for them.")
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)(*[1 << capability] * 3, 0, 0, 0)
        if ctypes.CDLL(None).capset(header, sets) == 0:
            _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)
            return
    sys.exit("This process may not give another user the right to pass through closed directories.")


def _prctl(option: int, *values: int) -> None:
    numbers = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *numbers) != 0:
        sys.exit(f"prctl({option}) failed: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
