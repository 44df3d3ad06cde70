# The sidecar as an image: `meshcache serve`. In a mesh Envoy is already there, so it is not in here. The filter for it is:
# /opt/meshcache/meshcache.wasm.
#   docker build -t meshcache:0.1.0 .
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /src
COPY constraints.txt ./
# By environment, so that the build backend is pinned as well: `-c` does not reach the environment that pip builds in.
# The second name is for pip 25.3 and later.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_BUILD_CONSTRAINT=/src/constraints.txt
RUN python -m venv --without-pip /opt/meshcache
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY policies policies
COPY wasm wasm
COPY sidecar sidecar
RUN python -m pip --python /opt/meshcache/bin/python install --no-cache-dir --no-compile . \
    && /opt/meshcache/bin/python -m compileall -q /opt/meshcache/lib \
    && ln -s "$(/opt/meshcache/bin/meshcache wasm path)" /opt/meshcache/meshcache.wasm \
    && cp /opt/meshcache/meshcache.wasm /plugin.wasm

# The filter alone, for meshes that fetch modules as images:
#   docker build --target filter -t meshcache-filter:0.1.0 .
FROM scratch AS filter
COPY --from=build /plugin.wasm /plugin.wasm

FROM python:${PYTHON}
# No installer in the image that runs, nor what could bring one back: what it holds is what was built above.
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip setuptools wheel \
    && rm -r "$(python -c 'import ensurepip; print(*ensurepip.__path__)')" \
    && install -d -o 65532 -g 65532 /var/lib/meshcache
COPY --from=build /opt/meshcache /opt/meshcache
COPY policies /etc/meshcache/policies
# Bytecode is compiled above: the root file system may be read-only. All that is written goes to the volume.
ENV PATH=/opt/meshcache/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
VOLUME /var/lib/meshcache
EXPOSE 9464
USER 65532:65532
ENTRYPOINT ["meshcache"]
CMD ["serve", "--policies", "/etc/meshcache/policies", "--data", "/var/lib/meshcache", "--metrics-listen", "0.0.0.0:9464"]
