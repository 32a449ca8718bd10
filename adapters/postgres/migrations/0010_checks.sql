-- The log knows the same words as the rows that it is about. What is there already is checked after the migration,
-- with the table open to everybody (see adapters/postgres/migrate.py).
ALTER TABLE operations
    ADD CONSTRAINT operations_operation_check CHECK (
        operation IN ('PROVISIONING', 'RESTORING', 'STARTING', 'STOPPING', 'ARCHIVING', 'CREATE_EMPTY_ARCHIVE',
                      'DELETING')) NOT VALID,
    ADD CONSTRAINT operations_previous_phase_check CHECK (
        previous_phase IN ('PENDING', 'ARCHIVED', 'STANDBY', 'RUNNING', 'ERROR', 'DELETING', 'DELETED')) NOT VALID,
    ADD CONSTRAINT operations_error_reason_check CHECK (
        error_reason IN ('Timeout', 'RetryExceeded', 'ActionFailed', 'Unreachable', 'DataLost', 'ImagePullFailed',
                         'ContainerWithoutVolume', 'ArchiveCorrupted')) NOT VALID;

-- Where there is no marker, the comparison is NULL, which a CHECK lets pass: RESTORING was possible without a mark.
ALTER TABLE workspaces
    DROP CONSTRAINT restoring_is_marked,
    ADD CONSTRAINT restoring_is_marked CHECK (
        operation <> 'RESTORING' OR home_ctx ->> 'restoring' IS NOT NULL
        OR COALESCE(home_ctx ->> 'restore_marker' = archive_key, false)) NOT VALID;
