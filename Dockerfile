# syntax=docker/dockerfile:1
# The environment of requirements.lock and the project, for a processor or a GPU:
#   docker build --tag figura .                                                       # CPU
#   docker build --build-arg ACCELERATOR=cu130 --tag figura:cuda .                    # CUDA 13.0; other names: pytorch.org
#   docker run --rm --pid host --gpus all --shm-size 8g --volume "$PWD:/figura" figura:cuda      # `dvc repro` in this folder
# `--pid host`: DVC would take the lock of a killed container for one of its own process, 1 in both; removing .dvc/tmp/rwlock helps.
# CUDA comes with PyTorch's own packages, so one base serves both; the host brings the driver. apptainer/figura.def is the same.
# The base is pinned by tag; where builds must be repeatable to the byte, add its digest (`docker buildx imagetools inspect`).
ARG PYTHON=3.12
FROM python:${PYTHON}-slim-bookworm

ARG ACCELERATOR=cpu
ARG UID=1000

ENV PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    DVC_NO_ANALYTICS=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# git: DVC reads the history; tcmalloc: stages/launch.py preloads it; the folder may belong to another user of the host. Its version is that of the base's release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git libtcmalloc-minimal4 \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory /figura \
    && useradd --create-home --uid "${UID}" figura \
    && install --directory --owner figura --group figura /figura

WORKDIR /figura
# Before the code, so that a change of the code does not install again. PyTorch alone comes from PyTorch's index.
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps --index-url "https://download.pytorch.org/whl/${ACCELERATOR}" "$(grep '^torch==' requirements.lock)" \
    && pip install --requirement requirements.lock

COPY --chown=figura:figura . ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps --editable .

USER ${UID}
ENTRYPOINT ["dvc"]
CMD ["repro"]
