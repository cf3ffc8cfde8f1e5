# The service in a container, from the wheel. First `make wheel`, then `docker build -t domainadaptor .`
# A torch without CUDA is gigabytes smaller: pass --build-arg PIP_EXTRA_INDEX_URL=<the index of torch for CPUs>.
FROM python:3.12-slim

ARG PIP_EXTRA_INDEX_URL
RUN --mount=type=bind,source=dist,target=/dist \
    pip install --no-cache-dir "$(ls /dist/domainadaptor-*.whl)[serve]" \
    && useradd --uid 10001 --create-home service
USER 10001
WORKDIR /models

# Every other machine can connect, so the service does not start without DOMAINADAPTOR_SERVE_TOKEN.
ENV DOMAINADAPTOR_SERVE_HOST=0.0.0.0
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD \
    ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=4)"]
ENTRYPOINT ["domainadaptor", "serve"]
CMD ["checkpoint.safetensors"]
