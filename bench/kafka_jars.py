"""Apache Kafka's jars, resolved by Maven once into build/oracle/lib; used by the bench and by the oracle tests.

`jars()` returns the directory, `classpath()` the argument of `java -cp`; both raise `OracleMissing` if Java, Maven or
the jars are not available. Tests use the fixture `kafka_classpath`, which then skips (or fails, with
STRANDLINE_REQUIRE_ORACLE=1).
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "oracle"
LIB = BUILD / "lib"
POM = HERE / "pom.xml"
MAVEN_TIMEOUT_S = 600


class OracleMissing(Exception):
    """Java, Maven or the jars are not available on this machine."""


def classpath() -> str:
    return str(jars() / "*")


def jars() -> Path:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise OracleMissing(f"{tool} is not installed")
    BUILD.mkdir(parents=True, exist_ok=True)
    expected = hashlib.sha256(POM.read_bytes()).hexdigest()
    complete = BUILD / "lib.complete"
    # Test processes start together: one of them resolves the jars, the others wait for it.
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (complete.exists() and complete.read_text() == expected and LIB.is_dir()):
            _resolve()
            complete.write_text(expected)
    return LIB


def _resolve() -> None:
    shutil.rmtree(LIB, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={LIB}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise OracleMissing(f"Maven did not resolve Kafka's jars within {MAVEN_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise OracleMissing(f"Maven could not resolve Kafka's jars: {(done.stdout + done.stderr).strip()[-500:]}")
