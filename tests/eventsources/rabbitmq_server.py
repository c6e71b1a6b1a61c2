"""A real RabbitMQ in processes of its own, of which none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.actions.conftest import Certificate, unused_port
from tests.eventsources.debian import libraries, tree_with
from tests.eventsources.fetching import until

_SERVER = "usr/lib/rabbitmq/bin/rabbitmq-server"
_START_SECONDS = 60.0
USER, PASSWORD = "shop", "open-1d4f"


class RabbitServer:
    """Keeps what it has got in `folder`. Has a port of its own for TLS."""

    def __init__(self, folder: Path, certificate: Certificate) -> None:
        tree = tree_with("rabbitmq-server", _SERVER)
        self.password = PASSWORD
        self.port, self.tls_port = unused_port(), unused_port()
        self._erlang = tree / "usr/lib/erlang"
        [programs] = self._erlang.glob("erts-*/bin")
        self._folder = folder
        self._distribution_port = unused_port()
        self._environment = self._settings(tree, programs, certificate)
        port_mapper = [str(programs / "epmd"), "-port", self._environment["ERL_EPMD_PORT"]]
        self._port_mapper = subprocess.Popen(port_mapper, env=self._environment)  # Erlang's would outlive the tests
        self._log = (folder / "log").open("wb")
        command = [str(tree / _SERVER)]
        self._process = subprocess.Popen(
            command, env=self._environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            start_new_session=True,
        )  # fmt: skip
        try:
            until(self._started, _START_SECONDS)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._port_mapper.kill()
        self._port_mapper.wait()
        self._log.close()

    def messages(self, queue: str) -> int:
        """Those that are ready and those that are not acknowledged."""
        found = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>))'
        return int(self._ask(f"{found}, [{{messages, N}}] = rabbit_amqqueue:info(Q, [messages]), N."))

    def set_password(self, password: str) -> None:
        self.password = password
        self._ask(f'rabbit_auth_backend_internal:change_password(<<"{USER}">>, <<"{password}">>, <<"tests">>).')

    def _ask(self, expression: str) -> str:
        """What an expression of Erlang's is worth there."""
        command = [str(self._erlang / "bin" / "erl_call"), "-address", f"localhost:{self._distribution_port}", "-e"]
        done = subprocess.run(
            command, env=self._environment, input=f"{expression}\n", capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("{ok, "), done.stdout
        return done.stdout[len("{ok, ") : -1]

    def _started(self) -> bool:
        said = (self._folder / "log").read_text(errors="replace")
        assert self._process.poll() is None, f"rabbitmq-server does not start: {said}"
        return "Server startup complete" in said

    def _settings(self, tree: Path, programs: Path, certificate: Certificate) -> dict[str, str]:
        folder = self._folder
        (folder / "enabled_plugins").write_text("[].")
        lines = [f"listeners.tcp.1 = 127.0.0.1:{self.port}", f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}"]
        lines += [f"ssl_options.certfile = {certificate.cert}", f"ssl_options.keyfile = {certificate.key}"]
        lines += [f"default_user = {USER}", f"default_pass = {PASSWORD}"]
        (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (folder / "bin").mkdir()
        (folder / "bin" / "erl").symlink_to(programs / "erlexec")  # Debian's `erl` knows only its own place
        erlang = {"ROOTDIR": str(self._erlang), "BINDIR": str(programs), "EMU": "beam", "PROGNAME": "erl"}
        return {
            **libraries(tree),
            **erlang,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(unused_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"shop-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }
