# The image of all pods: controller, sensors, event sources.
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements/pods.lock requirements/pods.lock
RUN python -m venv /opt/eventbus && /opt/eventbus/bin/pip install --no-cache-dir --require-hashes -r requirements/pods.lock
COPY pyproject.toml README.md LICENSE ./
COPY eventbus eventbus
COPY sensors sensors
COPY eventsources eventsources
RUN /opt/eventbus/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12-slim
COPY --from=build /opt/eventbus /opt/eventbus
ENV PATH=/opt/eventbus/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT []
CMD ["eventbus", "--help"]
