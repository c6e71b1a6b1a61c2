"""What a listener is told by a real MinIO."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from minio import MinioAdmin
from minio.credentials.providers import StaticProvider

from eventbus import Bus, Event
from eventsources.base import Identity, SourceError
from eventsources.sources.minio import MinioSource, MinioSpec
from tests.actions.conftest import Certificate
from tests.eventsources.fetching import Fetcher, fetching, running, until
from tests.eventsources.minio_server import ACCESS, SECRET, MinioServer
from tests.eventsources.serving import events_on, manifest, metric

IDENTITY = Identity("store", "upload", "minio")
MakeSecret = Callable[..., dict[str, str]]


def key_of(event: Event) -> str:
    return str(event.json()["notification"][0]["s3"]["object"]["key"])


def what(event: Event) -> tuple[str, str]:
    return str(event.json()["notification"][0]["eventName"]), key_of(event)


@pytest.fixture(scope="module")
def minio(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    server = MinioServer(program, tmp_path_factory.mktemp("minio"))
    server.make_bucket("pictures")
    server.make_bucket("others")
    server.make_bucket("versions", versioned=True)
    yield server
    server.close()


class MinioContract:
    """Whoever has it has the fixture `minio`, too, and a fixture `program`: where the server's program is."""

    def spec(self, server: MinioServer, secret: MakeSecret, **fields: Any) -> dict[str, Any]:
        return {
            "endpoint": server.address,
            "insecure": True,
            "bucket": {"name": "pictures"},
            "accessKey": secret(ACCESS, "access"),
            "secretKey": secret(SECRET, "secret"),
            "events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"],
            **fields,
        }

    def source(self, server: MinioServer, secret: MakeSecret, **fields: Any) -> MinioSource:
        return MinioSource(MinioSpec.model_validate(self.spec(server, secret, **fields)))

    def heard(self, server: MinioServer, fetcher: Fetcher, bucket: str = "pictures", key: str = "probe-%d") -> None:
        """Returns when the listener listens."""
        numbers = count()

        def is_told() -> bool:
            server.put(bucket, key % next(numbers))
            return bool(fetcher.events)

        until(is_told)

    def failure(self, server: MinioServer, bus: Bus, secret: MakeSecret, **fields: Any) -> str:
        with fetching(self.source(server, secret, **fields), bus, IDENTITY) as fetcher:
            error = fetcher.failure()
        assert isinstance(error, SourceError)
        assert "\n" not in str(error)
        return str(error)

    def test_what_is_put_and_removed_is_told(self, minio: MinioServer, bus: Bus, secret: MakeSecret) -> None:
        with fetching(self.source(minio, secret), bus, IDENTITY) as fetcher:
            self.heard(minio, fetcher)
            minio.put("others", "elsewhere")
            minio.put("pictures", "a b/ü.jpg")
            minio.put("pictures", "a b/ü.jpg")
            minio.client.remove_object("pictures", "a b/ü.jpg")
            until(lambda: len(self.told(fetcher)) == 3)
        assert [what(event) for event in self.told(fetcher)] == [
            ("s3:ObjectCreated:Put", "a b/ü.jpg"),
            ("s3:ObjectCreated:Put", "a b/ü.jpg"),
            ("s3:ObjectRemoved:Delete", "a b/ü.jpg"),
        ]
        assert len({event.id for event in fetcher.events}) == len(fetcher.events)
        record = self.told(fetcher)[0].json()["notification"][0]
        sequencer = record["s3"]["object"]["sequencer"]
        assert self.told(fetcher)[0].id == f"pictures a%20b/%C3%BC.jpg  {sequencer} s3:ObjectCreated:Put"
        assert record["s3"]["bucket"]["name"] == "pictures"
        assert record["s3"]["object"]["size"] == 3

    def told(self, fetcher: Fetcher) -> list[Event]:
        return [event for event in fetcher.events if not key_of(event).startswith("probe-")]

    def test_two_listeners_are_told_the_same_under_the_same_ids(
        self, minio: MinioServer, bus: Bus, secret: MakeSecret
    ) -> None:
        """As when a replica takes over while its predecessor has not noticed yet."""
        first, second = self.source(minio, secret), self.source(minio, secret, filter={"prefix": "both/"})
        other = Identity("store", "again", "minio")
        with fetching(first, bus, IDENTITY) as one, fetching(second, bus, other) as two:
            self.heard(minio, one)
            self.heard(minio, two, key="both/probe-%d")
            minio.put("pictures", "both/last")
            until(lambda: all("both/last" in map(key_of, fetcher.events) for fetcher in (one, two)))
        assert {event.id for event in two.events} <= {event.id for event in one.events}

    def test_versions_are_told_apart(self, minio: MinioServer, bus: Bus, secret: MakeSecret) -> None:
        with fetching(self.source(minio, secret, bucket={"name": "versions"}), bus, IDENTITY) as fetcher:
            self.heard(minio, fetcher, "versions")
            minio.client.remove_object("versions", "probe-0")
            until(lambda: what(fetcher.events[-1])[0] == "s3:ObjectRemoved:DeleteMarkerCreated")
        for event in fetcher.events:
            version = event.json()["notification"][0]["s3"]["object"]["versionId"]
            assert event.id.startswith(f"versions {key_of(event)} {version} ")

    def test_objects_are_chosen_by_prefix_and_suffix(self, minio: MinioServer, bus: Bus, secret: MakeSecret) -> None:
        chosen = {"prefix": "in/", "suffix": ".jpg"}
        source = self.source(minio, secret, filter=chosen, events=["s3:ObjectCreated:Put"])
        with fetching(source, bus, IDENTITY) as fetcher:
            self.heard(minio, fetcher, key="in/probe-%d.jpg")
            for key in ("in/a.png", "out/a.jpg", "in/a.jpg"):
                minio.put("pictures", key)
            minio.client.remove_object("pictures", "in/a.jpg")
            minio.put("pictures", "in/last.jpg")
            until(lambda: key_of(fetcher.events[-1]) == "in/last.jpg")
        keys = [key_of(event) for event in fetcher.events if "probe" not in key_of(event)]
        assert keys == ["in/a.jpg", "in/last.jpg"]

    def test_it_goes_on_when_the_server_has_been_away(self, minio: MinioServer, bus: Bus, secret: MakeSecret) -> None:
        with running(manifest("minio", "store", upload=self.spec(minio, secret)), bus) as runner:
            self.put_until_told(minio, bus, "before")
            minio.stop()
            until(lambda: metric(runner, "eventbus_source_restarts_total", eventsource="store", event="upload"))
            minio.start()
            self.put_until_told(minio, bus, "after")

    def put_until_told(self, server: MinioServer, bus: Bus, key: str) -> None:
        def is_told() -> bool:
            server.put("pictures", key)
            return any(key_of(event) == key for event in events_on(bus))

        until(is_told)

    def test_a_bucket_that_is_made_later(
        self, minio: MinioServer, bus: Bus, secret: MakeSecret, caplog: pytest.LogCaptureFixture
    ) -> None:
        spec = self.spec(minio, secret, bucket={"name": "later"})
        with running(manifest("minio", "store", upload=spec), bus):
            until(lambda: f"store/upload: MinIO at {minio.address}: NoSuchBucket: " in caplog.text)
            minio.make_bucket("later")

            def is_told() -> bool:
                minio.put("later", "a")
                return bool(events_on(bus))

            until(is_told)

    def test_wrong_keys(self, minio: MinioServer, bus: Bus, secret: MakeSecret, caplog: Any) -> None:
        said = self.failure(minio, bus, secret, secretKey=secret("wrong-7c2e", "wrong"))
        assert said.startswith(f"MinIO at {minio.address}: SignatureDoesNotMatch: ")
        said += self.failure(minio, bus, secret, accessKey=secret("nobody-9d", "nobody"))
        assert "InvalidAccessKeyId" in said
        assert "wrong-7c2e" not in said + caplog.text
        assert SECRET not in said + caplog.text

    def test_who_may_not_listen(self, minio: MinioServer, bus: Bus, secret: MakeSecret) -> None:
        admin = MinioAdmin(endpoint=minio.address, credentials=StaticProvider(ACCESS, SECRET), secure=False)
        admin.user_add("guest-4e", "guest-secret-4e")
        keys = {"accessKey": secret("guest-4e", "guest"), "secretKey": secret("guest-secret-4e", "guests")}
        assert "AccessDenied" in self.failure(minio, bus, secret, **keys)

    def test_an_event_that_minio_does_not_know(self, minio: MinioServer, bus: Bus, secret: MakeSecret) -> None:
        assert "event" in self.failure(minio, bus, secret, events=["s3:ObjectPainted:*"])

    def test_tls_and_a_region(
        self, program: str, tmp_path: Path, certificate: Certificate, bus: Bus, secret: MakeSecret
    ) -> None:
        server = MinioServer(program, tmp_path, certificate, "eu-west-1")
        try:
            server.make_bucket("pictures")
            trusted = {"insecure": False, "caCertificate": secret(certificate.cert.read_text(), "ca")}
            for region in ("", "eu-west-1"):
                with fetching(self.source(server, secret, region=region, **trusted), bus, IDENTITY) as fetcher:
                    self.heard(server, fetcher)
            assert "region" in self.failure(server, bus, secret, region="us-west-2", **trusted)
            assert "certificate" in self.failure(server, bus, secret, insecure=False)
        finally:
            server.close()
