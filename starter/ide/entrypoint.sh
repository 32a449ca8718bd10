#!/bin/sh
# What a workspace runs: code-server on $WORKSPACE_PORT, for whoever the proxy lets through.
set -eu

home="${HOME:-/home/coder}"
data="$home/.local/share/code-server"

# Settings to begin with. From then on they belong to the user. A full disk must not keep the IDE from starting.
if [ ! -e "$data/User/settings.json" ]; then
  {
    mkdir -p "$data/User" &&
      cp /usr/local/share/codehub/settings.json "$data/User/.settings.json.new" &&
      mv "$data/User/.settings.json.new" "$data/User/settings.json"
  } || true
fi

# dumb-init ends all processes on SIGTERM, and reaps the orphans of terminals where the engine has no init of its own.
# The socket is for `code-server FILE` in a terminal; in the home it would be a file that no archive can hold.
exec dumb-init -- code-server \
  --auth none \
  --bind-addr "0.0.0.0:${WORKSPACE_PORT:-8080}" \
  --disable-telemetry \
  --disable-update-check \
  --disable-workspace-trust \
  --disable-getting-started-override \
  --session-socket "/tmp/code-server-$(id -u).sock" \
  --user-data-dir "$data" \
  "$home"
