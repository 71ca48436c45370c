# Freehold in one small image: docker build -t freehold:0.1.0 .
# The Rust and Debian releases of both stages belong together: the program is linked with this Debian's glibc.
ARG RUST_VERSION=1.95.0

FROM rust:${RUST_VERSION}-bookworm AS build
ARG RUST_VERSION
# The toolchain of this image, rather than a download of whatever rust-toolchain.toml means today.
ENV RUSTUP_TOOLCHAIN=${RUST_VERSION}
WORKDIR /src
# .git comes along (see .dockerignore), so that the program knows the commit it was built from.
COPY . .
RUN cargo build --locked --profile dist --bin freehold \
 && mkdir -p /image/var/lib/freehold /image/usr/bin \
 && cp target/dist/freehold /image/usr/bin/freehold

# No shell, no package manager: glibc, libgcc and CA certificates only.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /image/usr/bin/freehold /usr/bin/freehold
# The only place it writes to; mount a volume here. The root file system can be read-only.
COPY --from=build --chown=65532:65532 /image/var/lib/freehold /var/lib/freehold
VOLUME /var/lib/freehold
# store.path is ./data by default, so the store lands on the volume, its key beside it.
WORKDIR /var/lib/freehold
# By number, so that Kubernetes can tell it is not root.
USER 65532:65532
# gRPC, HTTP, and health (/livez, /readyz, /metrics) once api.health.listen is set.
EXPOSE 7070 7071 7072
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/freehold"]
CMD ["serve"]
