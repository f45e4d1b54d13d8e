# syntax=docker/dockerfile:1
# The environment of requirements.lock and the project, for a processor or a GPU:
#   docker build --tag figura .                                                       # CPU
#   docker build --build-arg ACCELERATOR=cu130 --tag figura:cuda .                    # CUDA 13.0; other names: pytorch.org
#   docker run --rm --pid host --gpus all --shm-size 8g --user "$(id -u):$(id -g)" --volume "$PWD:/figura" figura:cuda
# The last runs `dvc repro` in this folder; words after it are another command of DVC. Builds need BuildKit (docker-buildx).
# `--pid host`: DVC tells by a process' number whether the lock of a killed container still holds; where it guessed wrong,
# removing .dvc/tmp/rwlock helps. `docker stop --time 300` ends a training with a resume point (by default it waits for 10 s).
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

# git: DVC reads the history, and commits experiments; tcmalloc: stages/launch preloads it. Versions are those of the base's
# release. The folder and the process may belong to any user of the host, whom the image need not know.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git libtcmalloc-minimal4 tini \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory /figura \
    && git config --system user.name figura \
    && git config --system user.email figura@localhost \
    && useradd --create-home --uid "${UID}" figura \
    && chmod 1777 /home/figura \
    && install --directory --owner figura --group figura /figura

WORKDIR /figura
# Before the code, so that a change of the code does not install again. PyTorch for CPUs is checked like all packages, by the
# hashes in the lock; of builds for GPUs PyTorch's index is believed.
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    if [ "${ACCELERATOR}" != cpu ]; then \
        pip install --index-url "https://download.pytorch.org/whl/${ACCELERATOR}" "$(grep --only-matching '^torch==[^ ]*' requirements.lock)"; \
    fi \
    && pip install --no-deps --require-hashes --extra-index-url https://download.pytorch.org/whl/cpu --requirement requirements.lock

COPY --chown=figura:figura . ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps --no-build-isolation --editable .

COPY --chmod=0755 docker/entrypoint.sh /usr/local/bin/figura
# of a user whom the image does not know; not above, where pip would look for its cache there
ENV HOME=/home/figura \
    USER=figura
USER ${UID}
ENTRYPOINT ["tini", "-s", "-g", "--", "figura"]
CMD ["repro"]
