"""A scripted Dell Enterprise SONiC switch: RESTCONF over HTTPS, as far as `roce enable` goes.

`roce enable` and `roce disable` save and reboot, as the switch does: the port closes and opens again.
"""

import datetime
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROCE = {"26": "3", "24": "3", "48": "6"}
QOS = "/data/openconfig-qos:qos"


class RestDevice:
    """One switch. `faults`: refuse (path part), never_back, mutate_dscp, lose_answer, lag_s, and deny_after,
    restart_at (a number of posts).
    """

    def __init__(self, home: Path, ports: list[str], **faults: Any) -> None:
        self.ports, self.faults, self.boots = ports, faults, 0
        self.roce: str | None = None  # PFC priorities while RoCE is enabled
        self.watchdog: dict[str, dict[str, Any]] = {}
        self.mtu = dict.fromkeys(ports, 9100)
        self.maps: list[str] = []
        self.posts: list[str] = []
        self.context = _certificate(home)
        self.server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1, or on the one it had."""
        handler = type("Handler", (_Handler,), {"device": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.server.daemon_threads = True
        self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reboot(self) -> None:
        """Go down and come back."""
        assert self.server
        self.server.shutdown()
        self.server.server_close()
        self.boots += 1
        if not self.faults.get("never_back"):
            time.sleep(2)
            self.start()

    def state(self) -> tuple[Any, ...]:
        """Everything that a test compares."""
        return self.roce, json.dumps(self.watchdog, sort_keys=True), dict(self.mtu)

    def get(self, path: str) -> Any:
        """The answer to a GET; None is 404."""
        if "SWITCH_LIST" in path:
            one = {"switch": "switch"}
            if self.roce:
                one |= {"roce_enable": True, "roce_pfc_priority": self.roce}
            return {"sonic-switch:SWITCH_LIST": [one]}
        for port in self.ports:
            if path.endswith(f"interface={port.replace('/', '%2f')}/config/mtu") or path.endswith(
                f"interface={port}/config/mtu"
            ):
                return {"openconfig-interfaces:mtu": self.mtu[port]}
        if path.endswith("openconfig-qos-maps-ext:dscp-maps"):
            names = (["ROCE"] if self.roce else []) + self.maps
            entries = [
                {"dscp": dscp, "config": {"dscp": dscp, "fwd-group": self.group(dscp)}} for dscp in range(64)
            ]
            maps = [{"name": n, "dscp-map-entries": {"dscp-map-entry": entries}} for n in names]
            return {"openconfig-qos-maps-ext:dscp-maps": {"dscp-map": maps}} if maps else None
        if path.endswith("/wred-profiles") and self.roce:
            config = {"ecn": "ECN_GREEN", "wred-green-enable": True, "green-min-threshold": 1048576}
            config |= {"green-max-threshold": 2097152, "green-drop-probability": 5}
            return {"openconfig-qos:wred-profiles": {"wred-profile": [{"name": "ROCE", "config": config}]}}
        if path.endswith("interfaces/interface"):
            return {"openconfig-qos:interface": [self.interface(port) for port in self.ports]}
        return None

    def group(self, dscp: int) -> str:
        """The forwarding group of a DSCP in the map ROCE."""
        return "1" if self.faults.get("mutate_dscp") == dscp else ROCE.get(str(dscp), "0")

    def interface(self, port: str) -> dict[str, Any]:
        """QoS of one port."""
        found: dict[str, Any] = {"interface-id": port}
        pfc: dict[str, Any] = {}
        if self.roce:
            found["openconfig-qos-maps-ext:interface-maps"] = {"config": {"dscp-to-forwarding-group": "ROCE"}}
            pfc["pfc-priorities"] = {
                "pfc-priority": [
                    {"dot1p": int(p), "config": {"dot1p": int(p), "enable": True}}
                    for p in self.roce.split(",")
                ]
            }
        if port in self.watchdog:
            pfc["watchdog"] = {"config": self.watchdog[port]}
        return found | ({"pfc": pfc} if pfc else {})

    def put(self, path: str, body: Any) -> int:
        """A POST, PUT or PATCH; returns the status."""
        self.posts.append(path)
        if len(self.posts) == self.faults.get("restart_at"):
            threading.Thread(target=self.reboot, daemon=True).start()
            return 0
        if self.faults.get("refuse") and self.faults["refuse"] in path:
            return 400
        if "qos-roce-config" in path:
            values = body["openconfig-qos-private:input"]
            self.roce = values["pfc-priority"] if values["operation"] == "ENABLE" else None
            if self.roce is None:
                self.watchdog = {}
            threading.Thread(target=self.reboot, daemon=True).start()
            return 0 if self.faults.get("lose_answer") else 200
        for port in self.ports:
            if (
                path.endswith(f"/{'interface=' + port}/config/mtu")
                or port.replace("/", "%2f") + "/config/mtu" in path
            ):
                self.mtu[port] = body["openconfig-interfaces:mtu"]
                return 204
        self.take_watchdog(body)
        return 204

    def take_watchdog(self, body: Any) -> None:
        """Find watchdog settings wherever the collection puts them."""
        for one in body.get("openconfig-qos:interfaces", {}).get("interface", []):
            config = one.get("pfc", {}).get("watchdog", {}).get("config")
            if config:
                self.watchdog.setdefault(one["interface-id"], {}).update(config)


class _Handler(BaseHTTPRequestHandler):
    device: RestDevice
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, body: Any = None) -> None:
        text = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/yang-data+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def expired(self) -> bool:
        """Whether the login is no longer taken; says so, in its own time."""
        time.sleep(self.device.faults.get("lag_s", 0))
        if len(self.device.posts) < self.device.faults.get("deny_after", 1_000):
            return False
        error = {"error-type": "protocol", "error-tag": "access-denied", "error-message": "Token expired"}
        self.answer(401, {"ietf-restconf:errors": {"error": [error]}})
        return True

    def do_GET(self) -> None:
        if self.expired():
            return
        found = self.device.get(self.path.removeprefix("/restconf"))
        if found is None:
            error = {
                "error-type": "application",
                "error-tag": "invalid-value",
                "error-message": "Resource not found",
            }
            self.answer(404, {"ietf-restconf:errors": {"error": [error]}})
        else:
            self.answer(200, found)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.expired():
            return
        status = self.device.put(self.path.removeprefix("/restconf"), body)
        if status == 0:
            self.close_connection = True
            self.connection.close()
        elif status >= 400:
            error = {"error-type": "application", "error-message": "refused"}
            self.answer(status, {"ietf-restconf:errors": {"error": [error]}})
        else:
            self.answer(status, {} if status == 200 else None)

    do_PATCH = do_PUT = do_POST  # noqa: N815


def _certificate(home: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = home / "device.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
