"""Ports of this machine on which a server of ours can listen, now and after a restart."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress

import psutil

from kafka_assets.errors import BrokerError

HOST = "127.0.0.1"

# Below the range from which systems give out ports for outgoing connections, so that a port that
# was free once is likely to be free again after a restart.
PORTS = range(20_000, 30_000)


def free_ports() -> Iterator[int]:
    """Ports on which nobody listens, in any order.

    Raises:
        BrokerError: There are no more.
    """
    for port in random.sample(PORTS, len(PORTS)):
        if bindable(port):
            yield port
    raise BrokerError(f"No free port on {HOST} between {PORTS.start} and {PORTS.stop}.")


def bindable(port: int) -> bool:
    """Whether a server could listen on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the broker does; without it, a port is "in use" for a minute after each stop.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def listener(port: int) -> str:
    """Who listens on a port, as the end of a sentence; empty when that cannot be seen."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listening = connection.status == psutil.CONN_LISTEN
            if listening and connection.laddr.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    return ""
