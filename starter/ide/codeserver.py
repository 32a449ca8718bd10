"""code-server and its Node, from the npm registry. No compiler is needed: see the two modules that are replaced."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from starter.embedded.child import Folders
from starter.ide.command import Command
from starter.ide.npm import Registry
from starter.ide.recipe import CODE_SERVER, FOLDER, NPM, OWN_FILES, Pin, Recipe

SECONDS = 1800.0
PLATFORMS = {"amd64": "linux-x64", "arm64": "linux-arm64"}
# Whoever installs code-server by npm runs these three; its own script does the latter two.
PROJECTS = (".", "lib/vscode", "lib/vscode/extensions")
# The registry has them as C++ source, which takes a compiler half a gigabyte large and a minute.
REPLACED = {"@vscode/spdlog": "spdlog.js", "@vscode/native-watchdog": "watchdog.js"}
# Agents that need an account elsewhere (the settings turn them off), and parts for other systems: 300 MB.
LEFT_OUT = (
    "lib/vscode/extensions/copilot",
    "lib/vscode/node_modules/@devcontainers",
    "lib/vscode/node_modules/@github",
    "lib/vscode/node_modules/@microsoft/mxc-sdk",
    "lib/vscode/node_modules/@vscode/sandbox-runtime",
    "lib/vscode/node_modules/@vscode/sqlite3",
    "lib/vscode/node_modules/@vscode/windows-process-tree",
    "lib/vscode/node_modules/@vscode/windows-registry",
    "lib/vscode/node_modules/cpu-features",
    "lib/vscode/node_modules/node-pty/deps",
    "lib/vscode/node_modules/node-pty/src",
    "lib/vscode/node_modules/node-pty/third_party",
)
# Of these folders only the part for the image's own system is of use.
PER_PLATFORM = ("lib/vscode/node_modules/@vscode/ripgrep-universal/bin", "lib/vscode/node_modules/node-pty/prebuilds")


# What the project's npm-shrinkwrap.json names. No script of a package runs on this machine.
INSTALL = (
    "install",
    "--omit=dev",
    "--ignore-scripts",
    "--no-save",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
)
# Whoever builds it: everything is root's, and nobody else may change it.
ROOT_OWNS = ("--owner=0", "--group=0", "--numeric-owner", "--mode=u+rwX,go+rX,go-w", "--sort=name")


async def make_codeserver(
    recipe: Recipe, target: Path, work: Path, folders: Folders, tell: Callable[[str], None]
) -> None:
    """Write it to `target` as a tar that goes on top of the root filesystem."""
    root = work / "editor"
    node, npm, server = work / "node", root / "usr/local/lib/node_modules/npm", root / "usr/local/lib/code-server"
    tell(f"downloading code-server {CODE_SERVER.version}")
    registry = Registry.of_machine(os.environ)
    async with asyncio.TaskGroup() as group:
        for pin, place in ((recipe.node, node), (NPM, npm), (CODE_SERVER, server)):
            group.create_task(_unpack(registry, pin, place, work, folders))
    tell("installing the packages of code-server")
    for number, project in enumerate(PROJECTS):
        await Command(
            name=f"ide-npm-{number}",
            argv=(str(node / "bin/node"), str(npm / "bin/npm-cli.js"), *INSTALL, f"--cache={work / 'npm-cache'}"),
            cwd=server / project,
            within=SECONDS,
        ).run(folders)
    tell("leaving out what a workspace has no use for")
    await asyncio.to_thread(_arrange, recipe, root, node, server)
    # Not the directories above: the root filesystem has them, and an engine takes no path twice.
    parts = sorted(str(part.relative_to(root)) for part in root.glob("usr/local/*/*"))
    await Command(
        name="ide-editor-tar",
        argv=("tar", "--create", *ROOT_OWNS, f"--file={target}", f"--directory={root}", *parts),
        within=SECONDS,
    ).run(folders)


async def _unpack(registry: Registry, pin: Pin, place: Path, work: Path, folders: Folders) -> None:
    tarball = work / f"{place.name}.tgz"
    await registry.fetch(pin, tarball)
    await asyncio.to_thread(place.mkdir, parents=True)
    await Command(
        name=f"ide-unpack-{place.name}",
        argv=("tar", "--extract", "--gzip", "--strip-components=1", f"--file={tarball}", f"--directory={place}"),
        within=SECONDS,
    ).run(folders)


def _arrange(recipe: Recipe, root: Path, node: Path, server: Path) -> None:
    prune(server, PLATFORMS[recipe.architecture])
    for module, replacement in REPLACED.items():
        replace(server / "lib/vscode/node_modules" / module, FOLDER / replacement)
    programs = root / "usr/local/bin"
    programs.mkdir()
    shutil.move(node / "bin/node", programs / "node")
    (programs / "npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    (programs / "npx").symlink_to("../lib/node_modules/npm/bin/npx-cli.js")
    (programs / "code-server").symlink_to("../lib/code-server/out/node/entry.js")
    # Where code-server's command line in a terminal looks for Node.
    (server / "lib/node").symlink_to("../../../bin/node")
    for file in OWN_FILES:
        place = root / file.path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.content)
        place.chmod(file.mode)


def replace(module: Path, script: Path) -> None:
    """Keep the module's name and license, nothing else."""
    for part in module.iterdir():
        if part.is_dir():
            shutil.rmtree(part)
        elif part.name not in {"package.json", "LICENSE"}:
            part.unlink()
    shutil.copy(script, module / "index.js")


def prune(server: Path, platform: str) -> None:
    for name in LEFT_OUT:
        shutil.rmtree(server / name, ignore_errors=True)
    for name in PER_PLATFORM:
        for part in (server / name).iterdir():
            if part.name != platform:
                shutil.rmtree(part)
    for file in _needless(server):
        file.unlink()


def _needless(server: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(server):
        for name in names:
            # Source maps, and npm's notes of where on this machine's way each package came from.
            if name.endswith(".map") or name == ".package-lock.json":
                yield Path(folder, name)
