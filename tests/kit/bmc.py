"""A BMC's Redfish service as a small HTTPS server; no real BMC was asked."""

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.run import ran

ROOT, CHASSIS = "/redfish/v1/Chassis", "/redfish/v1/Chassis/System.Embedded.1"
METRICS = {"EnvironmentMetrics": {"@odata.id": f"{CHASSIS}/EnvironmentMetrics"}}
POWER = {"Power": {"@odata.id": f"{CHASSIS}/Power"}}
TREE = {
    ROOT: {"Members": [{"@odata.id": CHASSIS}, {"@odata.id": "/redfish/v1/Chassis/Enclosure"}]},
    CHASSIS: {**METRICS, **POWER},
    "/redfish/v1/Chassis/Enclosure": {"Name": "drives"},
    f"{CHASSIS}/EnvironmentMetrics": {"PowerWatts": {"Reading": 1393.2}},
    f"{CHASSIS}/Power": {"PowerControl": [{"PowerConsumedWatts": 1390}, {"PowerConsumedWatts": 40}]},
}


def make_certificate(folder: Path) -> Path:
    """Make a certificate of localhost, signed by itself, `ca.pem`, with its key; return their folder."""
    about = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2")
    files = ("-keyout", folder / "key.pem", "-out", folder / "ca.pem")
    ran("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *about, *files, check=True)
    return folder


@contextmanager
def redfish(certificate: Path) -> Iterator[tuple[int, dict, list]]:
    """Serve a BMC: (port, its resources or a status, what it was asked for and with which header)."""
    tree, asked = dict(TREE), []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            resource = tree.get(self.path, 404)
            status, body = (
                (resource, b"{}") if isinstance(resource, int) else (200, json.dumps(resource).encode())
            )
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "https://elsewhere/redfish/v1/Chassis")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "ca.pem", certificate / "key.pem")
    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, tree, asked
    finally:
        server.shutdown()
        server.server_close()
