"""What one elected process does for all: leader lock, events, observing; may import domain, workflows.messages and adapters."""
