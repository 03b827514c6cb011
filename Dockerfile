# manyheads on CPUs:  docker build -t manyheads .
#                     docker run --rm -v "$PWD:/work" manyheads train data.path=reviews.csv output=outputs/reviews
FROM python:3.11-slim-bookworm AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
COPY --from=wheel /wheels /wheels
COPY constraints.txt /wheels/
# torch first, from the index of its small builds for CPUs, where one is given: the usual one brings CUDA, several GB
ARG TORCH_INDEX=""
RUN PIP_INDEX_URL="$TORCH_INDEX" pip install --no-cache-dir torch==2.13.0 \
    && pip install --no-cache-dir -c /wheels/constraints.txt --find-links /wheels manyheads==0.1.0
ENV HOME=/tmp
USER 1000
WORKDIR /work
ENTRYPOINT ["manyheads"]
