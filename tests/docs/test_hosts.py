"""A host with systemd: what docs/operations.md and docs/upgrades.md have root install, change and type there."""

import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from tests.docs.test_commands import blocks, commands_of
from tests.docs.test_docs import ROOT


def test_a_host_gets_its_files(tmp_path: Path) -> None:
    """What docs/operations.md has root copy and link, below another root; secrets are for root alone."""
    (block,) = (found for found in blocks((ROOT / "docs" / "operations.md").read_text()) if "ln -sfn" in found)
    lines = [line.partition("  #")[0].strip() for line in block.splitlines() if re.match("install|ln ", line)]
    for folder in ("opt", "etc/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "opt" / f"codehub-{version('codehub')}").symlink_to(ROOT)
    script = "\n".join(re.sub(r"(?<= )/(?=opt/|etc/)", f"{tmp_path}/", line) for line in lines)
    done = subprocess.run(
        ["sh", "-eux", "-c", script], cwd=ROOT, check=False, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "opt/codehub/deploy/systemd").is_dir()
    for name in ("codehub.env", "host.env"):
        assert (tmp_path / "etc/codehub" / name).stat().st_mode & 0o777 == 0o600
    units = {path.name for path in (ROOT / "deploy" / "systemd").glob("*.service")}
    assert {path.name for path in (tmp_path / "etc/systemd/system").iterdir()} == units


def test_what_is_to_be_filled_in_with_secrets_is_for_its_owner_alone(tmp_path: Path) -> None:
    """`.env`, the Secret, and the folder of logins: as the docs have them made, whatever the umask is."""
    for name in (".env.example", "deploy/kubernetes/secret.yaml.example"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    lines = {line.partition("  #")[0].strip() for _, line in commands_of("install")}
    wanted = {line for line in lines if re.search(r"\.example |/docker$", line) and "codehub.env" not in line}
    assert {line.split()[-1] for line in wanted} == {".env", "deploy/kubernetes/secret.yaml", "/etc/codehub/docker"}
    script = "\n".join(["umask 000", *(line.replace(" /etc/", f" {tmp_path}/etc/") for line in wanted)])
    done = subprocess.run(
        ["sh", "-eux", "-c", script], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    for name in (".env", "deploy/kubernetes/secret.yaml", "etc/codehub/docker"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
    assert [line for _, line in commands_of("cp") if ".example" in line] == []


def test_an_update_of_a_host_leaves_its_settings_alone(tmp_path: Path) -> None:
    """What docs/upgrades.md has root type, below another root: the link leads to the new version, the units are its."""
    section = (ROOT / "docs" / "upgrades.md").read_text().partition("### With systemd")[2].partition("\n##")[0]
    lines = [line.partition("  #")[0].strip() for block in blocks(section) for line in block.splitlines()]
    assert [line for line in lines if "/etc/codehub" in line] == []
    lines = [line for line in lines if re.match("install|ln ", line)]
    (new,) = re.findall(r"ln -sfn (\S+) /opt/codehub$", "\n".join(lines), re.MULTILINE)
    for folder in ("opt", "etc/systemd/system", "opt/codehub-0.0.1"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "opt/codehub").symlink_to(tmp_path / "opt/codehub-0.0.1")
    (tmp_path / new.lstrip("/")).symlink_to(ROOT)
    script = "\n".join(re.sub(r"(?<= )/(?=opt/|etc/)", f"{tmp_path}/", line) for line in lines)
    done = subprocess.run(
        ["sh", "-eux", "-c", script], cwd=ROOT, check=False, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "opt/codehub").resolve() == ROOT
    assert not list((tmp_path / "opt/codehub-0.0.1").iterdir())
    units = {path.name for path in (ROOT / "deploy" / "systemd").glob("*.service")}
    assert {path.name for path in (tmp_path / "etc/systemd/system").iterdir()} == units


def test_the_settings_of_a_host_in_a_shell(tmp_path: Path) -> None:
    """docs/operations.md: as systemd and `docker run --env-file` take them, whatever a shell thinks of a value."""
    systemd, compose = (
        found
        for found in blocks((ROOT / "docs" / "operations.md").read_text())
        if "\nsettings .env" in f"\n{found}" or "\nsettings /etc" in found
    )
    url = "postgresql://u:p$1@db/codehub?sslmode=verify-full&sslrootcert=/etc/ssl/pg ca.pem"
    example = (ROOT / "deploy" / "systemd" / "codehub.env.example").read_text()
    (tmp_path / "codehub.env").write_text(example.replace("DATABASE_URL=", f"DATABASE_URL={url}"))
    # Without an end of line.
    (tmp_path / "host.env").write_text("NODE_ADDRESS=10.0.0.12\nMETRICS_PORT=9464")
    (tmp_path / ".env").write_text(
        "S3_ACCESS_KEY=key\nS3_ENDPOINT=\nTRUSTED_PROXIES=10.0.0.1, 10.0.0.2\n# S3_BUCKET=x\n"
    )
    for shell in ("sh", "bash"):
        script = f"{systemd.replace('/etc/codehub', str(tmp_path))}\nenv -0"
        given = _environment([shell, "-euc", script], tmp_path)
        assert given["DATABASE_URL"] == url
        assert (given["NODE_ADDRESS"], given["METRICS_PORT"]) == ("10.0.0.12", "9464")
        assert (given["S3_BUCKET"], given["S3_REGION"]) == ("codehub", "us-east-1")
        assert given["PATH"].startswith("/opt/codehub/.venv/bin:")
        assert "REDIS_URL" not in given
        (function,) = re.findall(r"^settings\(\) .*$", systemd, re.MULTILINE)
        given = _environment([shell, "-euc", f"{function}\n{compose}\nenv -0"], tmp_path)
        assert (given["S3_ENDPOINT"], given["S3_BUCKET"]) == ("http://127.0.0.1:8333", "codehub")
        assert (given["S3_ACCESS_KEY"], given["TRUSTED_PROXIES"]) == ("key", "10.0.0.1, 10.0.0.2")


def _environment(command: list[str], folder: Path) -> dict[str, str]:
    """What it is after a script that shows it."""
    done = subprocess.run(
        command, cwd=folder, env={"PATH": os.environ["PATH"]}, check=True, capture_output=True, text=True, timeout=30
    )
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def test_a_host_is_installed_as_the_image_is() -> None:
    """With the same uv and the same options: what tests/docs/test_compose.py installs."""
    image = (ROOT / "Dockerfile").read_text()
    ((_, pip),) = commands_of(".tools/bin/pip")
    assert pip.split()[-1] in image
    ((_, sync),) = commands_of(".tools/bin/uv")
    (options,) = re.findall(r"^RUN uv sync (.+--no-editable.*)$", image, re.MULTILINE)
    assert set(options.split()) - {"--compile-bytecode"} == set(sync.split()[2:]) - {"--python", "python3"}
