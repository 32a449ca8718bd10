"""The image of a workspace with a real IDE: pulled where a registry answers, built from packages elsewhere."""
