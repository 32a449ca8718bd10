"""The way into a workspace: `/w/{id}/…` for HTTP and WebSocket (SPEC 8, 13), in front of the API and on its port.

- `door`: a client's connection; requests for workspaces are ours, all others go to uvicorn
- `exchange`: one request, let through or answered; `relay`: its bytes both ways; `tunnel`: a WebSocket's
- `decide`: what a request gets, from (user, workspace, kind of request); pure
- `head`, `body`, `frames`: what is read off the wire; `headers`, `cookies`: what is changed on the way
- `directory`, `identities`: what is known for a moment, so that no request costs a query
"""
