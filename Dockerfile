# docker build -t ablate . && docker run --gpus all -v "$PWD:/work" ablate run study.yaml
# The C compiler stays in the image: torch builds kernels for the GPU when a run starts.
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE constraints.txt /ablate/
COPY ablate /ablate/ablate
RUN pip install --no-cache-dir -c /ablate/constraints.txt /ablate
WORKDIR /work
ENTRYPOINT ["ablate"]
CMD ["--help"]
