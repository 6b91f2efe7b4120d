# Untested: written for a machine that has Docker.
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[serve,postgres]' && useradd --create-home treeward
USER treeward
# Compiled here, not at every start; for the kind of processor that the image is built on.
RUN treeward warm
WORKDIR /data
EXPOSE 8000
# Beyond loopback a key is needed: mount settings.toml with [[keys]] and host = "0.0.0.0".
CMD ["treeward", "serve", "--config", "/data/settings.toml"]
