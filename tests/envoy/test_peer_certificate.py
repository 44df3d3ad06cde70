"""Who a peer is by his certificate, as real Envoy tells it over mTLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from envoy_data_plane.envoy.config.core.v3 import DataSource, TransportSocket
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    DownstreamTlsContext,
    TlsCertificate,
)

from meshcache.envoy import bootstrap
from meshcache.envoy.render import pack
from meshcache.extproc import wire
from meshcache.message import Peer

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with the openssl command"),
]

URI = "spiffe://cluster.local/ns/shop/sa/frontend"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def certificates(folder: Path) -> None:
    """An authority, a server, a client that it knows and one of another authority."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    # Since Python 3.13 an authority without this extension is none, nor does a certificate count without the two below.
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for name in ("ca", "other"):
        out = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl(folder, "req", "-x509", *key, "-days", "1", "-subj", f"/CN={name}", *usage, *out)
    wanted = {
        "server": ("ca", "/CN=server", "DNS:server.example"),
        "client": ("ca", "/O=shop/CN=frontend", f"URI:{URI},URI:spiffe://second,DNS:frontend.shop"),
        "stranger": ("other", "/O=shop/CN=frontend", f"URI:{URI}"),
    }
    for name, (authority, subject, names) in wanted.items():
        extensions = f"subjectAltName={names}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        (folder / f"{name}.ext").write_text(extensions)
        openssl(folder, "req", *key, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signer = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "1")
        made = ("-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        openssl(folder, "x509", "-req", *signer, *made)


async def test_a_peer_is_who_his_certificate_says(make_rig, short_folder, monkeypatch):
    certificates(short_folder)
    context = CommonTlsContext(
        tls_certificates=[
            TlsCertificate(
                certificate_chain=DataSource(filename=str(short_folder / "server.pem")),
                private_key=DataSource(filename=str(short_folder / "server.key")),
            )
        ],
        validation_context=CertificateValidationContext(trusted_ca=DataSource(filename=str(short_folder / "ca.pem"))),
    )
    build = bootstrap._listener

    def secured(name, address, manager):
        listener = build(name, address, manager)
        if name == bootstrap.MAIN_LISTENER:
            (chain,) = listener.filter_chains
            tls = DownstreamTlsContext(common_tls_context=context)
            chain.transport_socket = TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(tls))
        return listener

    monkeypatch.setattr(bootstrap, "_listener", secured)
    rig = await make_rig()

    async def peer(name: str | None, forged: str = "") -> Peer:
        client = ssl.create_default_context(cafile=short_folder / "ca.pem")
        client.check_hostname = False
        if name is not None:
            client.load_cert_chain(short_folder / f"{name}.pem", short_folder / f"{name}.key")
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port, ssl=client)
        writer.write(f"GET /a HTTP/1.1\r\nhost: a\r\n{forged}connection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200")
        (message,) = [seen for seen in rig.sidecar.seen[-2:] if seen.WhichOneof("request") == "request_headers"]
        return wire.request_of(message).peer

    known = Peer("127.0.0.1", True, URI, "frontend.shop", "CN=frontend,O=shop")
    assert await peer("client") == known
    claim = f"x-forwarded-client-cert: By=x;URI={URI};Subject=CN=frontend\r\n"
    assert await peer(None, claim) == Peer("127.0.0.1")
    assert await peer("client", claim.replace(URI, "spiffe://else")) == known
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        await peer("stranger")
