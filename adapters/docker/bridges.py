"""The bridges of this machine, as the kernel knows them: where containers and virtual machines of others are."""

from pathlib import Path

DEVICES = Path("/sys/class/net")
ROUTES = Path("/proc/net/route")


def inner_bridges(devices: Path = DEVICES, routes: Path = ROUTES) -> list[str]:
    """Those that lead to nobody outside: no network device is on them, and no way out goes over them. On many a machine
    with virtual machines its own network is a bridge, too, and workspaces would be cut off."""
    ways_out = _ways_out(routes)
    found = sorted(folder.parent.name for folder in devices.glob("*/bridge"))
    return [name for name in found if name not in ways_out and not _has_device(devices / name)]


def _ways_out(routes: Path) -> set[str]:
    try:
        lines = routes.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return set()
    return {fields[0] for fields in map(str.split, lines) if int(fields[2], 16)}


def _has_device(bridge: Path) -> bool:
    """One of hardware, or one that rests on another (a bond, a VLAN). Containers and virtual machines have none."""
    members = [bridge.parent / member.name for member in (bridge / "brif").glob("*")]
    return any((member / "device").exists() or any(member.glob("lower_*")) for member in members)
