# The worker and the API of codehub. `docker build -t codehub .`
FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.9.*
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

FROM python:3.11-slim-bookworm
COPY --from=build /app/.venv /app/.venv
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 LOG_FORMAT=json
USER 65534:65534
ENTRYPOINT ["codehub"]
CMD ["--help"]
