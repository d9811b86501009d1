"""The embedded broker: start, crash, restart, refusals, and that it leaves nothing behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kafka_assets.demo.broker import Broker
from kafka_assets.demo.broker_config import MAX_MESSAGE_BYTES
from kafka_assets.demo.ports import HOST
from kafka_assets.demo.producing import ensure_topics
from kafka_assets.errors import BrokerError, JarsMissing

pytestmark = pytest.mark.broker

QUIET = {"log_level": 0}


def send(broker: Broker, value: bytes) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "acks": "all", **QUIET}
        | {"message.max.bytes": MAX_MESSAGE_BYTES}
    )
    errors = []
    producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


def read_all(broker: Broker, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": MAX_MESSAGE_BYTES,
            **QUIET,
        }
    )
    consumer.subscribe(["t"])
    try:
        messages = consumer.consume(count, timeout=30)
        return sorted(message.value() or b"" for message in messages)
    finally:
        consumer.close()


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_acknowledged_records_survive_a_crash_and_a_restart_on_another_port(tmp_path: Path):
    broker = Broker(tmp_path / "data")
    try:
        broker.start()
        ensure_topics(broker.bootstrap, ["t"], partitions=1)
        send(broker, b"before")
        crashed, first_port = broker.pid, broker.bootstrap
        broker.kill()
        assert crashed is not None
        assert gone(crashed)
        assert not broker.alive

        broker.start()
        assert broker.bootstrap == first_port
        send(broker, b"after")
        broker.stop()

        # Both ports change: the quorum's address is kept in the formatted storage.
        record = tmp_path / "data/broker.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"controller_port": 0}))
        with Broker(tmp_path / "data", port=_free_port()) as moved:
            assert moved.bootstrap != first_port
            send(moved, b"moved")
            assert read_all(moved, 3) == [b"after", b"before", b"moved"]
    finally:
        broker.stop()


def test_a_record_of_ten_megabytes_is_taken(demo_broker: Broker):
    ensure_topics(demo_broker.bootstrap, ["t"], partitions=1)
    send(demo_broker, b"x" * 10_000_000)


def test_a_mistyped_topic_is_not_created(demo_broker: Broker):
    admin = AdminClient({"bootstrap.servers": demo_broker.bootstrap, **QUIET})
    admin.list_topics("trakcer-events", timeout=5)
    assert "trakcer-events" not in admin.list_topics(timeout=5).topics


def test_a_paused_broker_answers_nothing_until_it_is_resumed(demo_broker: Broker):
    admin = AdminClient({"bootstrap.servers": demo_broker.bootstrap, **QUIET})
    demo_broker.pause()
    try:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        assert demo_broker.alive
    finally:
        demo_broker.resume()
    assert admin.list_topics(timeout=20).brokers


def test_a_folder_that_a_live_broker_serves_is_refused(demo_broker: Broker):
    with pytest.raises(BrokerError, match=f"process {demo_broker.pid}") as refusal:
        Broker(demo_broker.data_dir).start()
    assert demo_broker.bootstrap in str(refusal.value)
    assert demo_broker.alive


def test_a_port_in_use_is_named_with_its_process(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"Port {port} .*in use by .*\(process \d+\)"):
            Broker(tmp_path / "data", port=port).start()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match=r"file/data cannot be written"):
        Broker(tmp_path / "file/data").start()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(BrokerError, match=r"holds thesis\.txt"):
        Broker(tmp_path).start()


def test_missing_jars_are_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KAFKA_ASSETS_JARS", str(tmp_path / "none"))
    with pytest.raises(JarsMissing, match="kafka-assets setup"):
        Broker(tmp_path / "data").start()


def test_a_broker_that_does_not_come_up_shows_its_last_log_lines(tmp_path: Path):
    broker = Broker(tmp_path / "data", heap="1x")
    with pytest.raises(BrokerError, match="Invalid maximum heap size"):
        broker.start()
    assert not broker.alive


def test_stop_leaves_no_process_and_may_be_repeated(tmp_path: Path):
    broker = Broker(tmp_path / "data").start()
    pid = broker.pid
    assert pid is not None
    parents = psutil.Process(pid).ppid()
    broker.pause()
    broker.stop()
    broker.stop()
    assert gone(pid)
    assert gone(parents)
    assert broker.pid is None


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGTERM, id="terminated", marks=pytest.mark.verify),
    ],
)
def test_the_broker_ends_with_its_owner_and_the_next_start_waits_for_it(
    tmp_path: Path, end: signal.Signals
):
    program = (
        "import sys, time; from pathlib import Path; from kafka_assets.demo.broker import Broker\n"
        "print(Broker(Path(sys.argv[1])).start().pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.send_signal(end)
    with Broker(tmp_path / "data") as successor:
        assert successor.pid != pid
        assert gone(pid)


def test_the_command_line_runs_one_until_ctrl_c(tmp_path: Path):
    command = [sys.executable, "-m", "kafka_assets.cli", "broker", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        first = shell.stdout.readline()
        address = first.split()[2].rstrip(",")
        assert AdminClient({"bootstrap.servers": address, **QUIET}).list_topics(timeout=5).brokers
        pid = json.loads((tmp_path / "data/broker.json").read_text())["pid"]
        shell.send_signal(signal.SIGINT)
        rest = shell.stdout.read()
    assert shell.returncode == 0
    assert "Kafka stopped." in rest
    assert gone(pid)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
