"""What the pages say."""

from domain.model import ErrorReason, Operation

OPERATIONS = {
    Operation.NONE: "About to begin",
    Operation.PROVISIONING: "Making its home",
    Operation.RESTORING: "Restoring its home",
    Operation.STARTING: "Starting",
    Operation.STOPPING: "Stopping",
    Operation.ARCHIVING: "Archiving",
    Operation.CREATE_EMPTY_ARCHIVE: "Archiving",
    Operation.DELETING: "Deleting",
}

# What is going on, and what comes after it.
FOLLOWING = {
    Operation.STOPPING: "It is being put to sleep. When that is done, it is started again and opened.",
    Operation.ARCHIVING: "It is being archived. When that is done, you can restore it from here.",
    Operation.CREATE_EMPTY_ARCHIVE: "It is being archived. When that is done, you can restore it from here.",
    Operation.DELETING: "It is being deleted.",
}
OPENS = "This page opens it by itself as soon as it is running."
DELETING = "Its deletion was asked for."
RECOVERED = "It was recovered, and goes on from what is there."

REASONS = {
    ErrorReason.TIMEOUT: (
        "The last operation took longer than it may.",
        "Recover lets it go on from where it is. If it happens again, the machine may be overloaded: tell your admin.",
    ),
    ErrorReason.RETRY_EXCEEDED: (
        "The last operation failed again and again.",
        "Recover tries it once more. The operation log on the dashboard says what went wrong.",
    ),
    ErrorReason.ACTION_FAILED: (
        "The container engine refused what was asked of it.",
        "Recover tries it once more. The operation log on the dashboard says what it answered.",
    ),
    ErrorReason.UNREACHABLE: (
        "The container engine or the archive store could not be reached.",
        "Recover once they are back. Your data is where it was.",
    ),
    ErrorReason.DATA_LOST: (
        "Its home is gone and was not removed by codehub.",
        "Tell your admin first. Recover accepts the loss: it goes on from the last archive, or from an empty home.",
    ),
    ErrorReason.IMAGE_PULL_FAILED: (
        "Its image can't be had.",
        "Make sure that the image exists and that this machine may pull it, then recover.",
    ),
    ErrorReason.CONTAINER_WITHOUT_VOLUME: (
        "Its container runs without its home.",
        "Tell your admin: somebody removed a volume. Recover goes on from what is there.",
    ),
    ErrorReason.ARCHIVE_CORRUPTED: (
        "Its archive is damaged: what the store holds is not what was saved.",
        "Nothing was restored from it, and it was kept. Tell your admin; recover tries to restore it once more.",
    ),
}
