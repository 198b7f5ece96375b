# syntax=docker/dockerfile:1
#
# xnord in a container. Two images from one file:
#
#   docker build -t xnord .                              GPU and CPU
#   docker build -t xnord:cpu --build-arg VARIANT=cpu .  CPU only
#
# Both run on debian:13-slim: the CUDA runtime is in the binary, and the driver comes from the host,
# through the nvidia runtime. `make test-image` builds the CPU variant for real without an engine and
# runs it; it builds no CUDA.
#
#   docker run --rm --gpus all -p 127.0.0.1:8080:8080 xnord
#   docker run --rm            -p 127.0.0.1:8080:8080 xnord       no GPU: it serves on the CPU
#
# Settings are XNORD_* variables (docker run -e XNORD_BACKEND=cpu) or flags after the image's name;
# `docker run --rm xnord --help` lists them. The health check reads the variables, so set port and
# certificates by those.
#
# Who may call it: inside its own network namespace the daemon has to listen on all addresses, and
# what reaches it is decided by what you publish. Hence the image allows listening without a key
# (XNORD_ALLOW_UNAUTHENTICATED=true), and the lines above publish on loopback only. Before you
# publish it to others, give it keys:
#   docker run ... -v "$PWD/keys:/run/keys:ro" -e XNORD_API_KEYS_FILE=/run/keys -p 8080:8080 xnord
# and -e XNORD_ALLOW_UNAUTHENTICATED=false to make it refuse to start without them.

# CUDA 13 needs driver 580 or later; with an older one build with CUDA_VERSION=12.8.1.
ARG CUDA_VERSION=13.0.1
ARG VARIANT=cuda

# ---- build, with CUDA ----
FROM nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04 AS build-cuda
WORKDIR /src
# On its own first, so that changes of the sources do not install the packages anew.
COPY deploy/install-deps.sh deploy/
RUN deploy/install-deps.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make -j"$(nproc)" build CUDA=1 && strip build/xnord

# ---- build, CPU only ----
FROM debian:13-slim AS build-cpu
WORKDIR /src
COPY deploy/install-deps.sh deploy/
RUN deploy/install-deps.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make -j"$(nproc)" build CUDA=0 && strip build/xnord

# ---- run: libraries, and curl for the health check ----
FROM debian:13-slim AS run
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        curl libgomp1 libjansson4 libjpeg62-turbo libmicrohttpd12t64 libpng16-16t64 libstdc++6 \
        libxxhash0 zlib1g \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt

# ---- run, with CUDA: Ubuntu 24.04 links to the same versions of these libraries, but of libjpeg's ----
FROM run AS run-cuda
COPY --from=build-cuda /usr/lib/x86_64-linux-gnu/libjpeg.so.8 /usr/local/lib/
RUN ldconfig
COPY --from=build-cuda /src/build/xnord /usr/local/bin/xnord
COPY --from=build-cuda /src/LICENSE /usr/local/share/doc/xnord/LICENSE
# The driver compiles for chips newer than the binary's own code and keeps the result here.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUDA_CACHE_PATH=/tmp/xnord-cuda-cache

# ---- run, CPU only ----
FROM run AS run-cpu
COPY --from=build-cpu /src/build/xnord /usr/local/bin/xnord
COPY --from=build-cpu /src/LICENSE /usr/local/share/doc/xnord/LICENSE
ENV XNORD_BACKEND=cpu

# ---- the image: the same for both ----
FROM run-${VARIANT} AS xnord
LABEL org.opencontainers.image.title="xnord" \
      org.opencontainers.image.description="XNOR (1-bit) convolution over HTTP, on GPU and CPU" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV XNORD_LISTEN=0.0.0.0 \
    XNORD_PORT=8080 \
    XNORD_ALLOW_UNAUTHENTICATED=true
# Fails the build if a library is missing.
RUN ["/usr/local/bin/xnord", "--version"]
# A number, so that Kubernetes' runAsNonRoot can tell that it is not root.
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/bin/sh", "-c", "s=http; test -z \"$XNORD_TLS_CERT\" || s=https; exec curl -qfsSk --noproxy '*' --max-time 4 -o /dev/null $s://127.0.0.1:$XNORD_PORT/v2/health/ready"]
ENTRYPOINT ["/usr/local/bin/xnord"]
