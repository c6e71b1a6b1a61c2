"""An emulator of AWS in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

import urllib3
from botocore.session import Session

from tests.actions.conftest import unused_port
from tests.eventsources.fetching import until

REGION = "eu-west-1"
EVERYTHING = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'


class MotoServer:
    """Takes any keys, until it is told otherwise."""

    def __init__(self) -> None:
        self.port = unused_port()
        self.address = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
        until(self._answers)

    def client(self, service: str, keys: tuple[str, str] = ("testing", "testing")) -> Any:
        session = Session()
        session.set_credentials(*keys)
        return session.create_client(service, region_name=REGION, endpoint_url=self.address)

    def protect(self) -> tuple[str, str]:
        """From here on only these keys are taken."""
        iam = self.client("iam")
        iam.create_user(UserName="reader")
        iam.put_user_policy(UserName="reader", PolicyName="everything", PolicyDocument=EVERYTHING)
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        iam.close()
        self._tell("reset-auth", b"0")
        return key["AccessKeyId"], key["SecretAccessKey"]

    def reset(self) -> None:
        self._tell("reset-auth", b"inf")
        self._tell("reset", b"")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _tell(self, command: str, body: bytes) -> None:
        answer = urllib3.request("POST", f"{self.address}/moto-api/{command}", body=body, retries=False)
        assert answer.status == 200

    def _answers(self) -> bool:
        assert self._process.poll() is None, "moto does not start"
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False
