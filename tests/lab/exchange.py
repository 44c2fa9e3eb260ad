"""Two processes that exchange bytes over TCP as all_reduce of two ranks does, and print ms an iteration.

    python3 exchange.py OWN-ADDRESS OTHERS-ADDRESS ITERATIONS BYTES [CONGESTION-CONTROL]

Each sends its half in slices; the second half's slices follow what came of the first. It runs on a lab's
node, with the standard library alone.
"""

import socket
import sys
import threading
import time

PORT, CONNECTIONS, SLICES, WARMUP = 7000, 2, 32, 2


def main(own: str, other: str, iterations: int, size: int, control: str) -> float:
    """Exchange; return milliseconds an iteration."""
    part = size // SLICES // CONNECTIONS
    out, into = connect(own, other, control)
    arrived, came = 0, threading.Condition()

    def receive() -> None:
        nonlocal arrived
        room = bytearray(part)
        for _ in range((WARMUP + iterations) * SLICES):
            for connection in into:
                left = memoryview(room)
                while left:
                    left = left[connection.recv_into(left) :]
            with came:
                arrived += 1
                came.notify_all()

    def wait_for(slices: int) -> None:
        with came:
            came.wait_for(lambda: arrived >= slices)

    threading.Thread(target=receive, daemon=True).start()
    content, began = bytes(part), 0.0
    for iteration in range(WARMUP + iterations):
        if iteration == WARMUP:
            began = time.monotonic()
        for number in range(SLICES):
            wait_for(iteration * SLICES + max(0, number - SLICES // 2 + 1))
            for connection in out:
                connection.sendall(content)
    wait_for((WARMUP + iterations) * SLICES)
    return (time.monotonic() - began) / iterations * 1e3


def connect(own: str, other: str, control: str) -> tuple[list[socket.socket], list[socket.socket]]:
    """Return connections to the other and from it."""
    with socket.create_server((own, PORT), backlog=2 * CONNECTIONS) as server:
        out, until = [], time.monotonic() + 30
        while len(out) < CONNECTIONS:
            connection = socket.socket()
            if control:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            try:
                connection.connect((other, PORT))
            except OSError:
                connection.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
                continue
            out.append(connection)
        return out, [server.accept()[0] for _ in range(CONNECTIONS)]


if __name__ == "__main__":
    print(f"{main(*sys.argv[1:3], *map(int, sys.argv[3:5]), *(sys.argv[5:] or [''])):.1f}")  # type: ignore[arg-type]
