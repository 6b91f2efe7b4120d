# docker build -t treeward .        (`make image` builds it, runs it with a read-only root, and kills it)
FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /opt/treeward
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN /opt/treeward/bin/pip install --no-cache-dir -c constraints.txt '.[serve,postgres]'
# Compile the kernels now, not at every start. They fit the type of processor that the image is built on; on another one
# they are compiled at the start, and kept where NUMBA_CACHE_DIR says, if it is set.
RUN /opt/treeward/bin/treeward warm && /opt/treeward/bin/pip uninstall --yes --quiet pip setuptools

FROM python:3.11-slim
RUN groupadd --gid 10001 treeward \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin treeward \
    && install --directory --owner 10001 --group 10001 /data
COPY --from=build /opt/treeward /opt/treeward
# Nothing but /data is written, so the root may be read-only. Programs and kernels belong to root.
ENV PATH=/opt/treeward/bin:$PATH
USER 10001:10001
WORKDIR /data
EXPOSE 8000
# With tls_cert, replace this: the public port is then answered by https only.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-I", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
# To listen beyond loopback, a key is needed: settings.toml with [[keys]] and host = "0.0.0.0".
CMD ["treeward", "serve", "--config", "/config/settings.toml"]
