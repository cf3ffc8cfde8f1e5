"""Slow, large, odd and nosy clients: cut off, refused, and never told where anything is."""

import asyncio
import random
import string
import time

import psutil
import pytest

from tests.serve import report
from tests.serve.load import SLOW
from tests.serve.service import Service, dripping, exchange, form, parse_answer, picture, raw_request

FILES = [picture(at) for at in range(4)]
BODY, KIND = form(FILES)


def test_slow_senders_are_cut_off(service):
    async def run() -> list:
        return await asyncio.gather(*(dripping(service.port, start, drip) for start, drip in SLOW))

    for took, received in asyncio.run(run()):
        assert took < 20  # the limit is 4 seconds, but machines are busy
        assert parse_answer(received).status in (0, 200, 400, 408)


def test_clients_that_do_not_read_are_cut_off(service):
    """Ask for far more than the buffers of both ends hold, and read nothing."""

    async def run() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=1)
        writer.write(raw_request("GET", "/openapi.json", Connection="keep-alive") * 4000)
        reader._transport.pause_reading()
        until = time.perf_counter() + 20
        while time.perf_counter() < until:
            await asyncio.sleep(0.2)
            open_ones = [c for c in psutil.Process(service.process.pid).net_connections() if c.raddr]
            if writer.get_extra_info("sockname")[1] not in [
                c.raddr.port for c in open_ones if c.status == "ESTABLISHED"
            ]:
                writer.transport.abort()
                return True
        return False

    assert asyncio.run(run())
    assert service.predict(FILES).status == 200


def test_a_body_in_thousands_of_tiny_pieces_is_refused(service):
    start = raw_request("POST", "/predict", b"", Content_Length="", Transfer_Encoding="chunked", Content_Type=KIND)
    answer = service.send(start, b"1\r\nx\r\n" * 50_000)
    assert answer.status in (0, 400)
    pieces = b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[at : at + 500] for at in range(0, len(BODY), 500))
    )
    assert service.send(start, pieces, b"0\r\n\r\n").status == 200


@pytest.mark.parametrize("declared", ["400001", "99999999999"])
def test_a_large_body_is_refused_by_its_header(service, declared):
    answer = service.send(raw_request("POST", "/predict", b"", Content_Length=declared, Content_Type=KIND), bytes(2000))
    assert answer.status == 413
    assert "400000 bytes" in answer.error


def test_a_large_body_is_refused_while_it_comes_and_its_client_sees_the_answer(service):
    start = raw_request("POST", "/predict", b"", Content_Length="", Transfer_Encoding="chunked", Content_Type=KIND)
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    assert service.send(start, chunk * 200, b"0\r\n\r\n").status == 413
    assert service.ask("POST", "/predict", bytes(20_000_000), Content_Type=KIND).status == 413
    assert service.ask("POST", "/nowhere", bytes(300_000)).status == 404


def test_a_client_that_waits_for_a_word_gets_the_refusal_at_once(service):
    answer = service.send(raw_request("POST", "/predict", b"", Content_Length="999999999", Expect="100-continue"))
    assert answer.status == 413
    assert answer.seconds < 4


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET /v2\r\n\r\n",
        b"GET http://example.org/v2 HTTP/1.1\r\n\r\n",
        raw_request("GET", "/v2", Content_Length="-1"),
        raw_request("GET", "/v2", Content_Length="1, 2"),
        raw_request("POST", "/v2", b"", Content_Length="5", Transfer_Encoding="gzip"),
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 600_000 + b"\r\n\r\n",
        raw_request("GET", "/" + "a" * 40_000),
    ],
)
def test_what_is_not_http_is_refused(service, data):
    assert service.send(data).status in (0, 400, 404, 431, 501)
    assert service.ask("GET", "/v2/health/live").status == 200


def test_other_sites_and_other_hosts_are_refused(service):
    assert service.ask("POST", "/streams", Origin="http://evil.example").status == 403
    assert service.ask("POST", "/streams", Origin="null").status == 403
    assert service.ask("GET", "/v2", Host="evil.example").status == 403
    assert service.ask("GET", "/v2", Host="evil.example:80", Origin="http://evil.example:80").status == 403
    same = f"127.0.0.1:{service.port}"
    assert service.ask("GET", "/v2", Host=same, Origin=f"http://{same}").status == 200
    assert service.ask("GET", "/v2", Host=f"[::1]:{service.port}").status == 200
    assert "access-control-allow-origin" not in service.ask("OPTIONS", "/predict", Origin="http://localhost").headers


def odd_names(count: int) -> list[str]:
    draw = random.Random(0)
    parts = [
        "..",
        ".",
        "%2e%2e",
        "%2f",
        "\\",
        "etc",
        "passwd",
        "proc/self/environ",
        "file:",
        "http:",
        "//",
        "%00",
        "~",
        "ü",
    ]
    parts += [
        "v2",
        "models",
        "resnet20",
        "streams",
        "predict",
        "C:",
        "network.safetensors",
        "'",
        '"',
        ";",
        "&",
        "?",
        "#",
    ]
    words = ["".join(draw.choices(string.printable[:94], k=draw.randint(1, 9))) for _ in range(20)]
    return ["/".join(draw.choices(parts + words, k=draw.randint(1, 7))).replace(" ", "") for _ in range(count)]


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=[pytest.mark.load, pytest.mark.timeout(1500)])])
def test_no_name_path_or_header_leads_outside(service, folder, count):
    """Whatever names say, the answer is an error without paths, no file is opened and no connection is made."""
    (folder / "secret.txt").write_text("a-canary-in-a-file")
    service.predict(FILES)
    watched = len(service.events())
    for name in odd_names(count):
        ascii_name = name.encode("ascii", "replace").decode()
        body = b'--b\r\nContent-Disposition: form-data; name="' + name.encode() + b'"; filename="' + name.encode()
        body += b'"\r\nContent-Type: ' + name.encode() + b"\r\n\r\nx\r\n--b--\r\n"
        for answer in (
            service.ask("GET", f"/{ascii_name}"),
            service.ask("POST", f"/v2/models/{ascii_name}/infer", b"{}", Content_Type="application/json"),
            service.ask("POST", f"/predict?stream={ascii_name}", b"", Referer=ascii_name, X_Request_ID=ascii_name),
            service.ask("POST", "/predict", body, Content_Type="multipart/form-data; boundary=b"),
            service.ask("POST", "/calibrate", body, Content_Type="multipart/form-data; boundary=b"),
            service.ask("DELETE", f"/models/{ascii_name}"),
        ):
            assert answer.status in (0, 200, 400, 404, 405, 415, 422)
            assert answer.status != 200 or answer.body.startswith(
                (b'{"name":"domainadaptor"', b'{"name":"resnet20"', b"{}")
            )
            for word in (b"canary", b"/tmp", b"/usr", b"site-packages", b"Traceback", b".py", b"root:"):
                assert word not in answer.body
    assert not [event for event in service.events()[watched:] if not is_harmless(event)]
    if count == 1000:
        text = (
            f"{6 * count} requests: nothing outside; no file opened, no connection made (audit events of all processes)"
        )
        report.record("19 no escape", measured=text, holds=True)


def is_harmless(event: str) -> bool:
    """Whether Python only opened a module of its own."""
    kind, _, path = event.partition(" ")
    return kind == "open" and path.endswith((".py", ".pyc"))


def test_when_there_are_too_many_connections_the_idlest_makes_room(network, folder):
    service = Service(
        folder, "--workers", "1", "--limit", "max_connections=20", DOMAINADAPTOR_SERVE_TOKEN="s3cret"
    ).wait()
    try:

        async def run() -> list[int]:
            idle = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(60)]
            good = raw_request("GET", "/v2", Authorization="Bearer s3cret")
            answers = [(await exchange(service.port, good)).status for _ in range(5)]
            for _, writer in idle:
                writer.close()
            return answers

        assert asyncio.run(run()) == [200] * 5
        check_token(service)
    finally:
        assert service.stop() == 0


def check_token(service: Service) -> None:
    for wrong in (
        {},
        {"Authorization": "Bearer s3cre"},
        {"Authorization": "s3cret"},
        {"Authorization": "Bearer s3cretü"},
    ):
        for method, path in (("GET", "/v2"), ("POST", "/predict"), ("POST", "/calibrate"), ("GET", "/metrics")):
            answer = service.ask(method, path, **wrong)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer".lower()
    assert service.ask("GET", "/v2/health/ready").status == 200
    assert "s3cret" not in service.text()
