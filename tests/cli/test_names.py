"""Names in hints: what is pasted into a shell means what it says."""

import shlex

import pytest

from starter.commands.names import called


@pytest.mark.parametrize("name", ["demo", "my demo", "$(rm -r ~)", "it's", "-rf"])
@pytest.mark.parametrize("owner", [None, "al ice"])
def test_a_hint_can_be_pasted(name: str, owner: str | None) -> None:
    words = shlex.split(called({"name": name, **({"owner": owner} if owner else {})}))
    assert name in words
    assert not owner or words[words.index("--owner") + 1] == owner
    assert name != "-rf" or words[-2:] == ["--", "-rf"]
