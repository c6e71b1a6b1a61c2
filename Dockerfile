# The image of all pods: controller, sensors, event sources.
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements/pods.lock requirements/pods.lock
RUN python -m venv /opt/eventbus && \
    /opt/eventbus/bin/pip install --no-cache-dir --no-compile --require-hashes -r requirements/pods.lock
COPY pyproject.toml README.md LICENSE ./
COPY eventbus eventbus
COPY sensors sensors
COPY eventsources eventsources
# What has built the project is not needed to run it, and of the two clients for Kubernetes only one is.
RUN /opt/eventbus/bin/pip install --no-cache-dir --no-compile --no-deps --no-build-isolation . && \
    /opt/eventbus/bin/pip uninstall --yes hatchling editables packaging pathspec pluggy tomlkit trove-classifiers \
        setuptools pip && \
    rm -rf /opt/eventbus/lib/python3.*/site-packages/kubernetes/aio

FROM ${PYTHON}
LABEL org.opencontainers.image.title="eventbus" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/eventbus /opt/eventbus
# Pods cannot write bytecode, and would compile anew at every start: the base has none of the standard library, and some
# builders round the times of files, so that bytecode which goes by them is taken for old. ssh needs a user with a name.
RUN python -m compileall -q --invalidation-mode unchecked-hash -x "/(tests?|pip)/" \
        "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" /opt/eventbus && \
    echo "eventbus:x:65532:65532::/tmp:/usr/sbin/nologin" >> /etc/passwd && echo "eventbus:x:65532:" >> /etc/group
ENV PATH=/opt/eventbus/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["eventbus"]
CMD ["--help"]
