"""Where a broker's Java and jars come from: found on this machine, or resolved by Maven into a cache.

The cache lies outside any clone (``$XDG_CACHE_HOME/firstfault``), so one download serves all of them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KAFKA_VERSION = "4.1.1"
"""Apache Kafka release that tests and demo run on; 4.x is the line without ZooKeeper."""
MIN_JAVA = 17
"""What the 4.x broker jars are compiled for."""
DOWNLOAD_TIMEOUT_S = 600.0
"""About 43 MB of jars: seconds on a good line, minutes on a bad one."""
_POM = Path(__file__).with_name("local_kafka.pom.xml")


class BrokerUnavailable(Exception):
    """A local broker cannot be had; the message says what is missing or what the broker's log says."""


def cache_dir() -> Path:
    """The folder that keeps downloads between clones: ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "firstfault"


def find_java() -> str:
    """Path of a ``java`` of release 17 or later: ``$JAVA_HOME`` first, then the search path.

    Raises:
        BrokerUnavailable: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise BrokerUnavailable(f"Java >= {MIN_JAVA} is missing: no java on the search path")
    release = _java_release(java)
    if release < MIN_JAVA:
        raise BrokerUnavailable(
            f"Java must be >= {MIN_JAVA} for Apache Kafka {KAFKA_VERSION}, got {release} ({java})"
        )
    return java


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder that holds the broker's jars, downloaded by Maven the first time.

    A download is made beside its final place and renamed when whole, so a broken one is never used;
    concurrent callers wait for the first.

    Raises:
        BrokerUnavailable: nothing cached, and Maven is missing or failed.
    """
    jars = cache_dir() / f"kafka-{version}"
    if jars.is_dir():
        return jars
    jars.parent.mkdir(parents=True, exist_ok=True)
    with _locked(jars.with_name(f"{jars.name}.lock")):
        if not jars.is_dir():
            partial = jars.with_name(f"{jars.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _resolve(version, partial)
            partial.rename(jars)
    return jars


def _resolve(version: str, into: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerUnavailable("Maven is missing: no mvn on the search path, and no Kafka jars are cached")
    into.mkdir()
    pom = into / "pom.xml"
    shutil.copyfile(_POM, pom)
    command = [maven, "-B", "-q", "-ntp", "-f", str(pom), f"-Dkafka.version={version}"]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerUnavailable(f"Maven did not end within {DOWNLOAD_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0 or not any(into.glob("kafka_*.jar")):
        raise BrokerUnavailable(f"Maven could not resolve Apache Kafka {version}:\n{last_lines(done.stdout)}")
    pom.unlink()


def last_lines(text: str, count: int = 15) -> str:
    """The end of a program's output, for an error message."""
    return "\n".join(text.rstrip().splitlines()[-count:])


def _java_release(java: str) -> int:
    """The feature release of ``java``: 17 for "17.0.15", 8 for "1.8.0_402", 0 when it does not say."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
