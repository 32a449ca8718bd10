"""The HTTP API: `create_app` in app.py, one router per noun, raw ASGI around them."""
