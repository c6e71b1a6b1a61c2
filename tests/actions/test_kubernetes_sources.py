"""Where the objects of `k8s` and `argoWorkflow` come from: real files, repositories and servers."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sensors.actions.base import ActionContext, ActionError
from sensors.actions.k8s import K8sAction, K8sSpec
from sensors.actions.kube.s3 import signed_request
from sensors.actions.kube.source import S3Source, Source
from sensors.parameters import Parameter
from sensors.secrets import Secret
from tests.actions.conftest import Certificate, HttpServer, Reply
from tests.actions.kubernetes_api import KubernetesApi
from tests.actions.kubernetes_contract import call_with, config_map, parameter

CONTEXT = ActionContext(sensor="orders", namespace="shop", bootstrap_servers="", partitions={})
TEXT = json.dumps(config_map("fetched"))


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    server = KubernetesApi()
    monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
    yield server
    server.close()


def made_from(source: dict[str, Any], data: Any = None, patches: tuple[dict[str, Any], ...] = (), **fields: Any) -> str:
    """What an action with this source does; `patches` are the parameters of the trigger."""
    spec = K8sSpec.model_validate({"source": source, **fields})
    action = K8sAction(spec.patched_by(tuple(map(Parameter.model_validate, patches))), CONTEXT)
    try:
        return action.invoke(call_with(data))
    finally:
        action.close()


def failure_of(source: dict[str, Any], *args: Any) -> ActionError:
    with pytest.raises(ActionError) as caught:
        made_from(source, *args)
    assert not caught.value.sent
    return caught.value


# --- inline and file ------------------------------------------------------------------------------------------------


def test_inline_text_is_an_object(api: KubernetesApi) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: inline}\ndata: {a: 'off'}\n"
    assert made_from({"inline": text}) == "created configmaps/shop/inline"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ({}, "exactly one of"),
        ({"inline": TEXT, "file": {"path": "x"}}, "this one has 2"),
        ({"inline": "kind: ["}, "not one Kubernetes object"),
        ({"inline": "kind: Job"}, "needs its `apiVersion`"),
        ({"inline": f"{TEXT}\n---\n{TEXT}"}, "there are 2 objects"),
        ({"inline": "a: &a [x,x]\nb: &b [*a,*a]\n" + "c: !!python/name:os.system x"}, "not one Kubernetes object"),
        ({"resource": {"apiVersion": "v1"}}, "needs its `kind`"),
        ({"resource": {"apiVersion": "v1", "kind": "Pod", "metadata": []}}, "must be a mapping"),
        ({"url": {"path": "file:///etc/passwd"}}, "http:// or https://"),
        ({"url": {"path": "https://user:word@host/x"}}, "must not contain a user name"),
        ({"git": {"url": "--upload-pack=touch /tmp/x", "filePath": "a"}}, "that git can clone"),
        ({"git": {"url": "ext::sh -c id", "filePath": "a"}}, "that git can clone"),
        ({"git": {"url": "/r", "filePath": "../a"}}, "the path of a file inside the repository"),
        ({"git": {"url": "/r", "filePath": "d/"}}, "the path of a file inside the repository"),
        ({"git": {"url": "/r", "filePath": "a\0b"}}, "the path of a file inside the repository"),
        ({"git": {"url": "/r", "filePath": "a", "branch": "--output=x"}}, "the name of a branch"),
        ({"git": {"url": "/r", "filePath": "a", "githubApp": {}}}, "needs an https:// address"),
        ({"git": {"url": "/r", "filePath": "a", "creds": {}, "sshKeySecret": {}}}, "both say who we are"),
    ],
)
def test_a_source_that_cannot_be_used_is_a_mistake_of_the_manifest(source: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Source.model_validate(source)


def test_a_file_is_read_for_every_call(api: KubernetesApi, tmp_path: Path) -> None:
    file = tmp_path / "object.yaml"
    file.write_text(TEXT)
    source = {"file": {"path": str(file)}}
    assert made_from(source) == "created configmaps/shop/fetched"
    file.write_text(json.dumps(config_map("changed")))
    assert made_from(source) == "created configmaps/shop/changed"
    file.unlink()
    error = failure_of(source)
    assert str(error) == f"the source cannot be read: {file}: No such file or directory"
    assert error.retriable


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"x" * (1024 * 1024 + 1), "larger than 1024 KiB"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"just text", "must be a mapping"),
        (b"", "there are 0 objects"),
        (b"a: " + b"[" * 100 + b"]" * 100, "no usable object"),
    ],
)
def test_what_is_no_object_is_refused_for_good(
    api: KubernetesApi, tmp_path: Path, content: bytes, complaint: str
) -> None:
    (tmp_path / "x").write_bytes(content)
    error = failure_of({"file": {"path": str(tmp_path / "x")}})
    assert complaint in str(error)
    assert not error.retriable


def test_a_mounted_config_map_comes_before_the_clusters(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTBUS_CONFIG_DIR", str(tmp_path))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "wf").write_text(TEXT)
    assert made_from({"configmap": {"name": "store", "key": "wf"}}) == "created configmaps/shop/fetched"
    error = failure_of({"configmap": {"name": "other", "key": "wf", "namespace": "argo-events"}})
    assert "EVENTBUS_CONFIG_OTHER_WF" in str(error)
    assert "404" in str(error)
    assert ("GET", "/api/v1/namespaces/argo-events/configmaps/other") in api.requests


# --- url ------------------------------------------------------------------------------------------------------------


def test_a_page_is_an_object(api: KubernetesApi, http_server: HttpServer) -> None:
    http_server.reply.body = TEXT.encode()
    assert made_from({"url": {"path": http_server.url}}) == "created configmaps/shop/fetched"


@pytest.mark.parametrize(("status", "retriable"), [(404, False), (302, False), (429, True), (500, True)])
def test_a_page_that_is_not_there(api: KubernetesApi, http_server: HttpServer, status: int, retriable: bool) -> None:
    http_server.reply.status = status
    http_server.reply.headers = {"Location": "http://169.254.169.254/"}
    error = failure_of({"url": {"path": http_server.url}})
    assert str(error) == f"{http_server.url} cannot be read: status {status}"
    assert error.retriable is retriable


def test_a_page_that_never_ends_is_not_read_to_the_end(api: KubernetesApi, http_server: HttpServer) -> None:
    http_server.reply.body = b" " * (1024 * 1024 + 10)
    assert "larger than 1024 KiB" in str(failure_of({"url": {"path": http_server.url}}))


def test_certificates_are_verified_unless_the_manifest_says_otherwise(
    api: KubernetesApi, https_server: HttpServer
) -> None:
    https_server.reply.body = TEXT.encode()
    error = failure_of({"url": {"path": https_server.url}})
    assert "TLS" in str(error)
    assert https_server.requests == []
    for spelling in ("verifyCert", "verifycert"):
        assert "fetched" in made_from({"url": {"path": https_server.url, spelling: False}})


def test_an_event_chooses_the_page_but_not_the_host(api: KubernetesApi, http_server: HttpServer) -> None:
    http_server.reply.body = TEXT.encode()
    patch = parameter("where", "source.url.path")
    source = {"url": {"path": http_server.url}}
    made_from(source, {"where": http_server.url.replace("/hook", "/other")}, (patch,))
    assert http_server.requests[-1].path == "/other"
    for elsewhere in ("http://localhost:1/x", "http://127.0.0.1/x", "https://localhost/x"):
        error = failure_of(source, {"where": elsewhere}, (patch,))
        assert str(error) == "the parameters lead to another host than the trigger's"
    assert len(http_server.requests) == 1


# --- s3 -------------------------------------------------------------------------------------------------------------


def s3(endpoint: str, key: str = "dir/object.yaml", **more: Any) -> dict[str, Any]:
    credentials = {field: {"name": "minio", "key": field.lower()} for field in ("accessKey", "secretKey")}
    return {"s3": {"endpoint": endpoint, "bucket": {"name": "workflows", "key": key}, **credentials, **more}}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_SECRET_MINIO_ACCESSKEY", "AKIDEXAMPLE\n")
    monkeypatch.setenv("EVENTBUS_SECRET_MINIO_SECRETKEY", "secret-canary-31")


@pytest.mark.parametrize(
    ("region", "key", "path", "signature"),
    [
        (
            "",
            "dir/hello world+ü.yaml",
            "dir/hello%20world%2B%C3%BC.yaml",
            "9cf75cd934acc9e36efbb2830dbc1b0d0dce2156da73b51a6b736627f8fda874",
        ),
        (
            "eu-central-1",
            "a.yaml",
            "a.yaml",
            "9d5fe710af9412c2b5ac40788a45641ba1b3a79a67c6647c62ba31915e236390",
        ),
    ],
)
def test_requests_are_signed_as_aws_signs_them(region: str, key: str, path: str, signature: str) -> None:
    """The signatures were made with botocore from the same inputs."""
    source = S3Source.model_validate(s3("store.example:9000", key, insecure=True, region=region)["s3"])
    secret = Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    now = datetime(2026, 11, 17, 6, 30, tzinfo=UTC)
    url, headers = signed_request(source, Secret("AKIDEXAMPLE"), secret, now)
    assert url == f"http://store.example:9000/workflows/{path}"
    assert headers["Authorization"].endswith(f"Signature={signature}")


@pytest.mark.usefixtures("keys")
def test_an_object_of_a_store(api: KubernetesApi, http_server: HttpServer) -> None:
    http_server.reply.body = TEXT.encode()
    endpoint = http_server.url.split("/")[2]
    assert "fetched" in made_from(s3(endpoint, insecure=True))
    [request] = http_server.requests
    assert request.path == "/workflows/dir/object.yaml"
    assert request.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "canary" not in str(request.headers)


@pytest.mark.usefixtures("keys")
def test_a_store_may_have_a_certificate_of_its_own(
    api: KubernetesApi, https_server: HttpServer, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    https_server.reply.body = TEXT.encode()
    endpoint = https_server.url.split("/")[2]
    assert "TLS" in str(failure_of(s3(endpoint)))
    monkeypatch.setenv("EVENTBUS_SECRET_CA_PEM", certificate.cert.read_text())
    assert "fetched" in made_from(s3(endpoint, caCertificate={"name": "ca", "key": "pem"}))


@pytest.mark.usefixtures("keys")
def test_an_event_chooses_the_object_but_not_the_store(api: KubernetesApi, http_server: HttpServer) -> None:
    http_server.reply.body = TEXT.encode()
    host, _, port = http_server.url.split("/")[2].partition(":")
    patches = (
        parameter("bucket", "source.s3.bucket.name"),
        parameter("key", "source.s3.bucket.key"),
        parameter("port", "source.s3.endpoint", operation="append"),
    )
    chosen = {"bucket": "mine", "key": "hello.yaml", "port": f":{port}"}
    made_from(s3(host, insecure=True), chosen, patches)
    assert http_server.requests[0].path == "/mine/hello.yaml"
    error = failure_of(s3(host, insecure=True), {**chosen, "port": f".evil.example:{port}"}, patches)
    assert str(error) == "the parameters lead to another host than the trigger's"
    for key in ("../other/x", "a/./b", ""):
        error = failure_of(s3(host, insecure=True), {**chosen, "key": key}, patches)
        assert "`key` must be the key of an object" in str(error)
    assert len(http_server.requests) == 1


def test_a_secret_that_is_not_there_is_named(api: KubernetesApi) -> None:
    error = failure_of(s3("localhost:1"))
    assert "EVENTBUS_SECRET_MINIO_ACCESSKEY" in str(error)
    assert error.retriable


# --- git ------------------------------------------------------------------------------------------------------------


class Repository:
    """A real one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=trunk")

    def git(self, *arguments: str) -> str:
        who = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.com"}
        who |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.com", "GIT_CONFIG_GLOBAL": "/dev/null"}
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env={**os.environ, **who}, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit("manifests/object.yaml", TEXT)
    return made


def git(repository: Repository, **more: Any) -> dict[str, Any]:
    return {"git": {"url": f"file://{repository.folder}", "filePath": "manifests/object.yaml", **more}}


def test_a_file_of_a_repository(api: KubernetesApi, repository: Repository) -> None:
    assert made_from(git(repository)) == "created configmaps/shop/fetched"
    assert made_from(git(repository, url=str(repository.folder))).startswith("created before")


def test_branches_tags_and_references(api: KubernetesApi, repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "feature/x")
    repository.commit("manifests/object.yaml", json.dumps(config_map("branched")))
    repository.git("tag", "v1")
    repository.commit("manifests/object.yaml", json.dumps(config_map("later")))
    repository.git("update-ref", "refs/pull/7/head", "HEAD~1")
    repository.git("checkout", "--quiet", "trunk")
    assert made_from(git(repository)) == "created configmaps/shop/fetched"
    assert made_from(git(repository, branch="feature/x")) == "created configmaps/shop/later"
    assert made_from(git(repository, branch="feature/x", tag="v1")) == "created configmaps/shop/branched"
    assert made_from(git(repository, tag="v1", ref="refs/heads/trunk")).endswith("configmaps/shop/fetched")
    assert made_from(git(repository, ref="refs/pull/7/head")).endswith("configmaps/shop/branched")


def test_a_directory_is_kept_and_brought_up_to_date(api: KubernetesApi, repository: Repository, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "here"
    source = git(repository, cloneDirectory=str(kept))
    made_from(source)
    repository.commit("manifests/object.yaml", json.dumps(config_map("newer")))
    assert made_from(source) == "created configmaps/shop/newer"
    assert (kept / "objects").is_dir()


def test_another_remote_is_used(api: KubernetesApi, repository: Repository) -> None:
    remote = {"name": "upstream", "urls": [f"file://{repository.folder}"]}
    assert "fetched" in made_from(git(repository, url="https://nowhere.invalid/x.git", remote=remote))


@pytest.mark.parametrize(
    ("more", "complaint", "retriable"),
    [
        ({"filePath": "nothing.yaml"}, "`nothing.yaml` is no file of the repository at `HEAD`", False),
        ({"filePath": "manifests"}, "`manifests` is no file of the repository", False),
        ({"filePath": "link.yaml"}, "`link.yaml` is a symbolic link", False),
        ({"filePath": "big.yaml"}, "`big.yaml` is larger than 1,048,576 bytes", False),
        ({"branch": "nowhere"}, "git fetch failed: fatal: couldn't find remote ref refs/heads/nowhere", True),
        ({"url": "file:///nowhere-at-all"}, "git fetch failed: fatal: '/nowhere-at-all' does not appear to be", True),
    ],
)
def test_what_cannot_be_read_from_git(
    api: KubernetesApi, repository: Repository, more: dict[str, str], complaint: str, retriable: bool
) -> None:
    (repository.folder / "link.yaml").symlink_to("/etc/passwd")
    repository.commit("big.yaml", "x" * (1024 * 1024 + 1))
    error = failure_of(git(repository, **more))
    assert complaint in str(error)
    assert error.retriable is retriable


def test_an_event_chooses_a_file_of_the_repository(api: KubernetesApi, repository: Repository) -> None:
    patch = parameter("file", "source.git.filePath")
    source = git(repository, filePath="unknown")
    assert "fetched" in made_from(source, {"file": "manifests/object.yaml"}, (patch,))
    error = failure_of(source, {"file": "../../etc/passwd"}, (patch,))
    assert "`filePath` must be the path of a file inside the repository" in str(error)


def test_without_git_there_is_one_clear_message(
    api: KubernetesApi, repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = failure_of(git(repository))
    assert str(error).endswith("the `git` command is not installed, and a `git` source needs it")


def test_the_users_own_configuration_does_not_count(
    api: KubernetesApi, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository(tmp_path / "other")
    other.commit("manifests/object.yaml", json.dumps(config_map("elsewhere")))
    (tmp_path / ".gitconfig").write_text(f'[url "file://{other.folder}"]\n\tinsteadOf = file://{repository.folder}\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    assert made_from(git(repository)) == "created configmaps/shop/fetched"


class GitServer:
    """git's own server behind HTTP, for one user."""

    def __init__(self, root: Path, user: str, password: str) -> None:
        expected = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                if self.headers.get("Authorization") != expected:
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="git"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                path, _, query = self.path.partition("?")
                environment = {
                    **os.environ,
                    "GIT_PROJECT_ROOT": str(root),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "REQUEST_METHOD": self.command,
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                }
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                done = subprocess.run(
                    ["git", "http-backend"], env=environment, input=body, capture_output=True, check=True
                )
                head, _, content = done.stdout.partition(b"\r\n\r\n")
                self.send_response(200)
                for line in head.decode().splitlines():
                    self.send_header(*line.split(": ", 1))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = handle_any  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_git_is_told_who_we_are_and_nobody_else_is(
    api: KubernetesApi, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTBUS_SECRET_HUB_USER", "bot")
    monkeypatch.setenv("EVENTBUS_SECRET_HUB_WORD", "pa$$ 'word-canary-5'")
    creds = {"username": {"name": "hub", "key": "user"}, "password": {"name": "hub", "key": "word"}}
    server = GitServer(repository.folder.parent, "bot", "pa$$ 'word-canary-5'")
    try:
        source = git(repository, url=f"{server.url}/repository/.git", creds=creds)
        assert made_from(source) == "created configmaps/shop/fetched"
        monkeypatch.setenv("EVENTBUS_SECRET_HUB_WORD", "wrong-canary-6")
        error = failure_of(source)
    finally:
        server.close()
    assert "git fetch failed" in str(error)
    assert "canary" not in str(error)


# --- GitHub apps ----------------------------------------------------------------------------------------------------


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, certificate: Certificate, tmp_path: Path) -> dict[str, Any]:
    """An app whose key is real, on a host whose certificate is trusted."""
    key = tmp_path / "app.pem"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    monkeypatch.setenv("EVENTBUS_SECRET_APP_PEM", key.read_text())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    return {"privateKey": {"name": "app", "key": "pem"}, "appID": 12, "installationID": 34}


def github(server: HttpServer, app: dict[str, Any]) -> dict[str, Any]:
    return {"git": {"url": server.url.replace("/hook", "/me/repository.git"), "filePath": "a", "githubApp": app}}


def test_an_app_proves_who_it_is_by_its_signature(
    api: KubernetesApi, https_server: HttpServer, app: dict[str, Any], tmp_path: Path
) -> None:
    https_server.reply.status = 201
    https_server.reply.body = b'{"token": "token-canary-99"}'
    error = failure_of(github(https_server, app))  # the server knows no git, but that comes later
    assert "canary" not in str(error)
    request = https_server.requests[0]
    assert (request.method, request.path) == ("POST", "/api/v3/app/installations/34/access_tokens")
    head, payload, signature = request.headers["Authorization"].removeprefix("Bearer ").split(".")
    claim = json.loads(urlsafe_b64decode(f"{payload}=="))
    assert claim["iss"] == "12"
    assert claim["exp"] - claim["iat"] == 600
    (tmp_path / "signature").write_bytes(urlsafe_b64decode(f"{signature}=="))
    public = ["openssl", "rsa", "-in", "app.pem", "-pubout", "-out", "public.pem"]
    subprocess.run(public, cwd=tmp_path, check=True, capture_output=True)
    verify = ["openssl", "dgst", "-sha256", "-verify", "public.pem", "-signature", "signature"]
    subprocess.run(verify, cwd=tmp_path, check=True, capture_output=True, input=f"{head}.{payload}".encode())


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    ("reply", "complaint", "retriable"),
    [
        (Reply(401), "answered 401, and gave no token", False),
        (Reply(503), "answered 503, and gave no token", True),
        (Reply(201, body=b"{}"), "gave no token", True),
    ],
)
def test_an_app_that_gets_no_token(
    https_server: HttpServer, app: dict[str, Any], reply: Reply, complaint: str, retriable: bool
) -> None:
    https_server.reply = reply
    error = failure_of(github(https_server, app))
    assert complaint in str(error)
    assert error.retriable is retriable


def test_a_key_that_is_none_is_told(
    api: KubernetesApi, https_server: HttpServer, app: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTBUS_SECRET_APP_PEM", "key-canary-3")
    error = failure_of(github(https_server, app))
    assert str(error).endswith("the `privateKey` of `githubApp` is not a private key in PEM format")
    assert https_server.requests == []
