import pytest
from starter.api.passwords import Passwords
import tests.api.test_login as L
test_unknown_users_take_as_long_ = L.test_unknown_users_take_as_long
from tests.api.world import serving
from adapters.postgres.lockout import Lockout
async def test_mutant(database_url, monkeypatch):
    real = Passwords.verify
    async def verify(self, stored, password):
        return False if stored is None else await real(self, stored, password)
    monkeypatch.setattr(Passwords, "verify", verify)
    with pytest.raises(AssertionError) as e:
        await test_unknown_users_take_as_long_(database_url)
    print(e.value)
