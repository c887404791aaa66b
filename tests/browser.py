"""A headless Chromium that cannot reach anything, driven through the distribution's chromedriver.

Pages are opened with scripts disabled and every host name mapped to nothing. What the page asked
for is kept, so that a test can say that it asked for nothing.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


class Browser:
    """One page of one Chromium. Sizes are in CSS pixels."""

    def __init__(self, port: int, folder: Path, program: str) -> None:
        self._port = port
        asked = {
            "goog:loggingPrefs": {"performance": "ALL"},
            "goog:chromeOptions": {
                "binary": program,
                "args": [*ARGUMENTS, f"--user-data-dir={folder}"],
            },
        }
        started = self._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        self._session = f"/session/{started['sessionId']}"
        self.command("Emulation.setScriptExecutionDisabled", value=True)
        self._call("POST", f"{self._session}/url", {"url": "about:blank"})
        self.requests()  # those of Chromium's own first page

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        body = {"cmd": name, "params": parameters}
        return self._call("POST", f"{self._session}/goog/cdp/execute", body)

    def open(self, page: Path, width: int, *, dark: bool = False) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self._call("POST", f"{self._session}/url", {"url": page.as_uri()})

    def value(self, expression: str) -> Any:
        """What an expression gives in the page: asked by the test, so that it runs all the same."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """The addresses that pages asked for since this was called last."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def names(self, role: str) -> list[str]:
        """What a screen reader says for every element of a role."""
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        found = [node for node in nodes if node.get("role", {}).get("value") == role]
        return [node.get("name", {}).get("value", "") for node in found]

    def screenshot(self) -> bytes:
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def pdf(self) -> bytes:
        self.command("Emulation.setEmulatedMedia", media="", features=[])
        printed = self.command("Page.printToPDF", preferCSSPageSize=True)
        return base64.b64decode(printed["data"])

    def close(self) -> None:
        self._call("DELETE", self._session)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            value = json.loads(answer.read())["value"]
        if answer.status != http.client.OK:
            raise RuntimeError(f"{method} {path}: {value['message']}")
        return value


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Start Chromium; without one skip the test, or fail it where CI is set."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        missing = "needs the programs chromium and chromedriver"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    command = [str(programs[1]), "--port=0"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert driver.stdout is not None
    try:
        port = next(
            int(found[1])
            for line in driver.stdout
            if (found := re.search(r"successfully on port (\d+)", line))
        )
        browser = Browser(port, folder, str(programs[0]))
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.terminate()
        driver.stdout.close()
        driver.wait()
