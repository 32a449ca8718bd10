"""What of code-server goes into the image."""

from pathlib import Path

from starter.ide.codeserver import LEFT_OUT, PER_PLATFORM, prune, replace


def test_prune(tmp_path: Path) -> None:
    """Parts for other systems, agents, source maps and notes on this machine's registry are left out; no more."""
    kept = {"out/node/entry.js", *(f"{folder}/linux-x64/program" for folder in PER_PLATFORM)}
    needless = {
        *(f"{folder}/file" for folder in LEFT_OUT),
        *(f"{folder}/darwin-arm64/program" for folder in PER_PLATFORM),
        "out/node/entry.js.map",
        "node_modules/.package-lock.json",
    }
    for name in kept | needless:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    prune(tmp_path, "linux-x64")
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()} == kept


def test_replace(tmp_path: Path) -> None:
    """A module that is replaced keeps its name and its license, and nothing of its source."""
    module = tmp_path / "module"
    (module / "src").mkdir(parents=True)
    for name in ("package.json", "LICENSE", "binding.gyp", "index.js", "src/main.cc"):
        (module / name).write_text(name)
    script = tmp_path / "ours.js"
    script.write_text("ours")
    replace(module, script)
    assert {file.name: file.read_text() for file in module.iterdir()} == {
        "package.json": "package.json",
        "LICENSE": "LICENSE",
        "index.js": "ours",
    }
