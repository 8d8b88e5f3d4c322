"""A PostgreSQL server of the tests' own, from the Debian package or whatever is on the path."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from service.local_kafka import free_port


class PostgresUnavailable(Exception):
    """No PostgreSQL server can be started here; says why."""


class LocalPostgres:
    """One server on a loopback port; for root it runs as `postgres` or `nobody`.

    Its data lie in a temporary folder of their own: pytest's can only be entered by who runs the tests.
    """

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="firstfault-postgres-"))
        self._folder = self._place / "data"
        self._log = self._place / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def url(self, database: str = "postgres") -> str:
        """Address of a database."""
        return f"postgresql://tester@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Make the cluster and start the server.

        Raises:
            PostgresUnavailable: it is not installed, or does not start.
        """
        programs, user = _programs(), _account()
        self._folder.mkdir()
        self._log.touch()
        if user is not None:
            for path in (self._place, self._folder, self._log):
                os.chown(path, pwd.getpwnam(user).pw_uid, -1)
        made = subprocess.run(
            [programs / "initdb", "-D", self._folder, "-U", "tester", "--auth=trust", "-E", "UTF8", "-N"],
            user=user,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise PostgresUnavailable(f"initdb failed: {made.stderr.strip()[-300:]}")
        self.port = free_port()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(programs / "postgres", "-D", self._folder, "-p", str(self.port), "-k", ""),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=50"),
                ],
                user=user,
                cwd="/",
                stdout=log,
                stderr=log,
            )
        self._wait()

    def stop(self) -> None:
        """End the server; safe to call twice."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        shutil.rmtree(self._place, ignore_errors=True)

    def _wait(self) -> None:
        import psycopg

        give_up_s = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > give_up_s:
                    told = self._log.read_text(errors="replace")[-300:]
                    raise PostgresUnavailable(f"the server did not start: {error} {told}") from error
                time.sleep(0.1)


def _programs() -> Path:
    """The folder of initdb and postgres; Debian keeps them off the path."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise PostgresUnavailable("initdb was not found: apt-get install postgresql")
    return found[-1].parent


def _account() -> str | None:
    """The account to run as: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise PostgresUnavailable("it does not run as root, and there is no account postgres or nobody")
