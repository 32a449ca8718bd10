"""Temporal as the settings name it, the same for every process and command."""

from temporalio.service import TLSConfig

from settings import Settings, SettingsError, payload_keys
from workflows.client import TemporalAddress


def temporal_address(settings: Settings) -> TemporalAddress:
    key = settings.temporal_api_key
    return TemporalAddress(
        settings.temporal_address or "",
        settings.temporal_namespace,
        _tls(settings),
        key.get_secret_value() if key else None,
        payload_keys(settings.temporal_payload_keys),
    )


def _tls(settings: Settings) -> bool | TLSConfig:
    cert, key = settings.temporal_tls_cert, settings.temporal_tls_key
    if (cert is None) != (key is None):
        raise SettingsError("TEMPORAL_TLS_CERT and TEMPORAL_TLS_KEY belong together: set both, or none")
    if not (cert or settings.temporal_tls_ca or settings.temporal_tls_server_name):
        return settings.temporal_tls
    return TLSConfig(
        server_root_ca_cert=settings.temporal_tls_ca.read_bytes() if settings.temporal_tls_ca else None,
        domain=settings.temporal_tls_server_name,
        client_cert=cert.read_bytes() if cert else None,
        client_private_key=key.read_bytes() if key else None,
    )
