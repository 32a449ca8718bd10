"""The way into a workspace: `/w/{id}/…` for HTTP and WebSocket (SPEC 8, 13). It stands in front of the API, on one port.

door       the client's connection: ours, or handed to uvicorn            wire   heads and bodies, strictly read
exchange   one request and its answer          tunnel   a WebSocket       upstream   connections to workspaces
decide     what a request gets, from (user, workspace, kind of request): pure
directory, identities   what is known for a moment, so that no request costs a query
"""
