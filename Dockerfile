# The worker and the API of codehub. `docker build -t codehub:0.1.0 .`
FROM python:3.11.14-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.9.7
WORKDIR /app
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --frozen --no-dev --no-install-project
COPY domain domain
COPY workflows workflows
COPY activities activities
COPY adapters adapters
COPY coordinator coordinator
COPY starter starter
COPY worker.py settings.py ./
RUN uv sync --frozen --no-dev --no-editable --compile-bytecode

FROM python:3.11.14-slim-bookworm
# tar reads homes directly where the volume is in reach; iptables keeps workspaces from the host's own ports.
RUN apt-get update && apt-get install --yes --no-install-recommends iptables tar && rm -rf /var/lib/apt/lists/*
COPY --from=build /app/.venv /app/.venv
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 LOG_FORMAT=json
USER 65534:65534
ENTRYPOINT ["codehub"]
CMD ["--help"]
