"""TLS by two files, and proxies that are believed only where the settings name them."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import trustme

from service.doctor.serving import review_serving
from service.errors import ConfigError
from service.serve_config import ServeConfig
from service.tls_files import Certificate

from .api_builders import Seeded, seeded, served


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for part in issued.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    return Certificate(path=str(folder / "cert.pem"), key=str(folder / "key.pem"))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Seeded]:
    with seeded(tmp_path) as one:
        yield one


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_with_a_certificate_the_service_speaks_tls_alone(
    api: Seeded, authority: trustme.CA, certificate: Certificate
) -> None:
    with served(api.app, certificate=certificate) as (port, _):
        with httpx2.Client(base_url=f"https://127.0.0.1:{port}", verify=trusting(authority)) as client:
            answer = client.get("/v1/runs")
            assert answer.status_code == 200
            origin = {"Origin": f"https://127.0.0.1:{port}"}
            assert client.get("/v1/runs", headers=origin).status_code == 200
        with pytest.raises(httpx2.ConnectError), httpx2.Client() as stranger:
            stranger.get(f"https://127.0.0.1:{port}/v1/runs")
        with pytest.raises(httpx2.TransportError), httpx2.Client() as plain:
            plain.get(f"http://127.0.0.1:{port}/v1/runs")


def test_old_versions_of_tls_are_refused(
    api: Seeded, authority: trustme.CA, certificate: Certificate
) -> None:
    context = trusting(authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with served(api.app, certificate=certificate) as (port, server):
        config = server.config.ssl
        assert config is not None
        assert config.minimum_version >= ssl.TLSVersion.TLSv1_2
        with httpx2.Client(base_url=f"https://127.0.0.1:{port}", verify=context) as client:
            assert client.get("/healthz").status_code == 200


def test_what_is_wrong_with_the_files_is_told_before_anything_begins(
    certificate: Certificate, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "firstfault", "serve", "--port", "0", "--data", str(tmp_path)]
    done = subprocess.run(
        [*command, "--tls-cert", str(tmp_path / "no.pem")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("firstfault: serve.tls_cert and serve.tls_key: ")
    other = trustme.CA().issue_cert("127.0.0.1").private_key_pem
    other.write_to_path(tmp_path / "other.pem")
    for key in (str(tmp_path / "other.pem"), ""):
        with pytest.raises(ConfigError, match=r"cert\.pem"):
            Certificate(path=certificate.path, key=key).check()
    certificate.check()


@pytest.mark.parametrize(
    "wrong", [{"tls_key": "key.pem"}, {"trusted_proxies": ("proxy.example",)}, {"host": " "}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ServeConfig(**wrong)  # type: ignore[arg-type]  # one of each type


@pytest.mark.parametrize(("trusted", "status"), [(["127.0.0.1"], 403), (["127.0.0.0/8"], 403), ([], 200)])
def test_only_a_named_proxy_is_believed_about_who_asks(api: Seeded, trusted: list[str], status: int) -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
    with served(api.app, trusted_proxies=trusted) as (port, _), httpx2.Client() as client:
        answer = client.get(f"http://127.0.0.1:{port}/v1/runs", headers=forwarded)
    assert answer.status_code == status  # 403: who is not this machine needs a token


@pytest.mark.parametrize(
    ("serve", "told"),
    [
        ({}, []),
        ({"host": "localhost"}, []),
        ({"host": "0.0.0.0"}, [("warn", "without TLS: tokens go over the network in the clear")]),
        ({"tls_cert": "/no/such"}, [("fail", "/no/such: No such file or directory")]),
        ({"trusted_proxies": ("0.0.0.0/0",)}, [("warn", "believes 0.0.0.0/0")]),
        ({"trusted_proxies": ("10.1.0.0/16",)}, []),
    ],
)
def test_settings_that_leave_the_service_open_are_told(
    serve: dict[str, object], told: list[tuple[str, str]]
) -> None:
    found = list(review_serving(ServeConfig(**serve)))  # type: ignore[arg-type]  # one of each type
    assert [one.state.value for one in found] == [state for state, _ in told]
    assert all(words in one.found for (_, words), one in zip(told, found, strict=True))


def test_a_certificate_that_can_be_used_leaves_nothing_to_say(certificate: Certificate) -> None:
    serve = ServeConfig(host="0.0.0.0", tls_cert=certificate.path, tls_key=certificate.key)
    assert list(review_serving(serve)) == []
