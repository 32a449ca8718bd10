"""Effects, one module per concern; may import domain, workflows.messages and adapters."""
