"""A real browser for the pages: Chromium without a window, spoken to over two pipes (the DevTools protocol)."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from importlib.resources import files
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Chromium reads commands from descriptor 3 and answers on 4: put them there, then become it.
START = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Tab": 9}


class Chromium:
    """One window. `complaints` are console errors, exceptions and requests that did not stay on the disk."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [sys.executable, "-c", START, str(theirs_in), str(theirs_out), program, *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number, self._session = b"", 0, None
        self.complaints: list[str] = []
        self._events: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        """One command, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear(60)
            assert heard is not None, f"Chromium does not answer {method}"
            if heard.get("id") == self._number:
                assert "error" not in heard, heard
                return heard["result"]
            self._note(heard)

    def _hear(self, seconds):
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], seconds)[0]:
                return None
            block = os.read(self._in, 2**20)
            if not block:
                return None
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, heard):
        method, told = heard.get("method", ""), heard.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:600])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not told["request"]["url"].startswith(("file:", "data:")):
            self.complaints.append(f"asked for {told['request']['url']}")

    def open(self, page: Path | str, fragment="", *, wide=1360, high=900, dark=False):
        """Show a file as it lies on the disk, or an address, and wait until it is there, with the first map, if any."""
        self.complaints.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Page.navigate", url="about:blank")
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.send("Page.navigate", url=f"{address}{fragment}")
        self.wait(
            "document.readyState === 'complete' && location.href !== 'about:blank'"
            " && (typeof current === 'undefined' || current !== null)"
        )

    def value(self, expression):
        """What a JavaScript expression comes to."""
        told = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait(self, expression, seconds=20):
        """Until the expression holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.value(expression):
                return
            time.sleep(0.03)
        raise AssertionError(f"never: {expression}; {self.complaints}")

    def point(self, selector, *, click=False, x=0.5, y=0.5):
        """Move the pointer to a place of an element: from its upper left corner, in shares or, above 1, pixels."""
        found = f"document.querySelector({json.dumps(selector)})"
        box = self.value(f"{found}.scrollIntoView({{block: 'nearest'}}), {found}.getBoundingClientRect().toJSON()")
        at = {
            "x": box["x"] + (x if x > 1 else x * box["width"]),
            "y": box["y"] + (y if y > 1 else y * box["height"]),
        }
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def findings(self):
        """What axe-core finds that keeps people out: how serious it is, the rule and the places."""
        source = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        self.value(f"{source}; 0")
        found = self.value(
            "axe.run().then(all => all.violations.map(one => [one.impact, one.id, "
            "one.nodes.map(node => node.html.slice(0, 200))]))"
        )
        return [one for one in found if one[0] in ("serious", "critical")]

    def press(self, *keys):
        """Keys of the keyboard, by name."""
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                letters = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
                code = KEYS[key]
                self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **letters)

    def picture(self, path: Path):
        """What is seen, as a PNG."""
        path.write_bytes(b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        """End the browser and all its children."""
        self._session = None
        try:
            self.send("Browser.close")
            self._process.wait(20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
        finally:
            os.close(self._in)
            os.close(self._out)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """The browser; tests that need it are skipped where none is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    browser = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
