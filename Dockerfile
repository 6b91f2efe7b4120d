# Untested: written for a machine that has Docker.
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[serve,postgres]' && useradd --create-home treeward
USER treeward
# Compile the kernels now, not at every start; they fit the type of processor that the image is built on.
RUN treeward warm
WORKDIR /data
EXPOSE 8000
# To listen beyond loopback, a key is needed: mount settings.toml with [[keys]] and host = "0.0.0.0".
CMD ["treeward", "serve", "--config", "/data/settings.toml"]
