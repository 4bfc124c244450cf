# Queuegate with its bundled PostgreSQL. With DATABASE_URL set, that one is not started.
#
#   docker build -t queuegate .
#   docker run --rm -p 9324:9324 -v queuegate:/var/lib/queuegate queuegate
#
# In place of LocalStack, with the aws CLI for its scripts:
#
#   docker build -t queuegate:4-localstack --target localstack .
#   docker run --rm -p 4566:4566 queuegate:4-localstack

FROM python:3.13-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/queuegate
COPY requirements/run.txt requirements/build.txt requirements/
RUN /opt/queuegate/bin/pip install --no-cache-dir --require-hashes \
      -r requirements/run.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY protocol protocol
COPY queuegate queuegate
COPY scheduler scheduler
COPY storage storage
RUN /opt/queuegate/bin/pip install --no-cache-dir --no-deps --no-build-isolation .
# The documentation, which the gateway serves at /docs.
COPY requirements/docs.txt requirements/
RUN python -m venv /opt/docs \
 && /opt/docs/bin/pip install --no-cache-dir --require-hashes -r requirements/docs.txt
COPY ARCHITECTURE.md CHANGELOG.md CODE_OF_CONDUCT.md CONTRIBUTING.md SECURITY.md ./
COPY docs docs
COPY spark_connectors/BENCH.md spark_connectors/JVM.md spark_connectors/OPTIONS.md \
  spark_connectors/README.md spark_connectors/TROUBLE.md spark_connectors/
COPY tests/bench/NOTEBOOK.md tests/bench/README.md tests/bench/
RUN /opt/queuegate/bin/python -m docs.site.openapi build/openapi \
 && site=$(/opt/queuegate/bin/python -I -c 'import queuegate; print(queuegate.__path__[0])')/_site \
 && NO_MKDOCS_2_WARNING=1 /opt/docs/bin/mkdocs build --strict --quiet \
      --config-file docs/site/mkdocs.yml --site-dir "$site" \
 && /opt/queuegate/bin/pip uninstall --yes setuptools pip \
 && find /opt/queuegate -path '*/pginstall/include' -prune -exec rm -r {} +

FROM python:3.13-slim-bookworm AS run
# PostgreSQL asks for the name of its user, so the user must exist in /etc/passwd.
RUN groupadd --gid 10001 queuegate \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/queuegate \
      --shell /usr/sbin/nologin queuegate \
 && install -d -o queuegate -g queuegate -m 0700 /var/lib/queuegate
COPY --from=build /opt/queuegate /opt/queuegate
COPY deploy/docker-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
ENV PATH=/opt/queuegate/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    QUEUEGATE_HOST=0.0.0.0 \
    QUEUEGATE_DATA_DIR=/var/lib/queuegate
USER 10001:10001
VOLUME ["/var/lib/queuegate"]
EXPOSE 9324
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
  CMD ["queuegate", "health"]
ENTRYPOINT ["docker-entrypoint.sh"]

FROM run AS localstack
USER 0:0
COPY requirements/conformance-cli.txt /tmp/
RUN python -m venv /opt/aws-cli \
 && /opt/aws-cli/bin/pip install --no-cache-dir --require-hashes -r /tmp/conformance-cli.txt \
 && ln -sf /opt/aws-cli/bin/aws /usr/local/bin/aws
USER 10001:10001
ENV QUEUEGATE_LIKE=localstack \
    QUEUEGATE_DATA_DIR=
EXPOSE 4566

FROM run
