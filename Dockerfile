# gpuform with everything in requirements.lock, for a project that is mounted at /project:
#   docker build -t gpuform . && docker run --rm -v "$PWD:/project" gpuform render -o rendered
FROM docker.io/library/python:3.13.15-slim-bookworm
# A C compiler for what has no official binary, git for previews, ssh for own hosts, make for contributors.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev make openssh-client \
    && rm -rf /var/lib/apt/lists/*
COPY . /usr/src/gpuform
RUN pip install --no-cache-dir --require-hashes -r /usr/src/gpuform/requirements.lock \
    && pip install --no-cache-dir --no-deps --no-build-isolation /usr/src/gpuform \
    && rm -rf /usr/src/gpuform
WORKDIR /project
ENTRYPOINT ["gpuform"]
