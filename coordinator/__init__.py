"""What one elected process does for all; may import domain, workflows.messages, workflows.client and adapters."""
