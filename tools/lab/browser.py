# SPDX-License-Identifier: BSD-2-Clause
"""Headless Chromium on a host of a lab, by its DevTools protocol over a pair of pipes: no port, no library."""

import base64
import json
import os
import shutil
import subprocess
import time

from lab import readable

CHROMIUM = shutil.which("chromium", path="/usr/bin:/bin")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"]


class Browser:
    """One window. `complaints`: what the page or its policy had to say on the console."""

    def __init__(self, host, name="chromium", timeout=90):
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        self._timeout, self._n, self._buf, self.complaints = timeout, 0, b"", []
        flags = " ".join([*FLAGS, f"--user-data-dir={host.lab.dir}/{name}"])
        # The protocol is spoken on descriptors 3 and 4.
        self.proc = host.popen(f"exec 3<&{to_read} 4>&{to_write}; exec {CHROMIUM} {flags} about:blank", log=f"{name}.log",
                               pass_fds=(to_read, to_write))
        os.close(to_read)
        os.close(to_write)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _message(self, end):
        while b"\0" not in self._buf:
            if not readable([self._in], end - time.monotonic()):
                raise TimeoutError("the browser does not answer")
            more = os.read(self._in, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self._buf += more
        text, self._buf = self._buf.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        """One command of the protocol; its result."""
        self._n += 1
        head = {"id": self._n, "method": method, "params": params}
        if self._session:
            head["sessionId"] = self._session
        os.write(self._out, json.dumps(head).encode() + b"\0")
        end = time.monotonic() + self._timeout
        while True:
            m = self._message(end)
            if m.get("id") == self._n:
                if "error" in m:
                    raise RuntimeError(f"{method}: {m['error']['message']}")
                return m["result"]
            if m.get("method") == "Log.entryAdded" and m["params"]["entry"]["level"] in ("error", "warning"):
                self.complaints.append(m["params"]["entry"]["text"])
            elif m.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(m["params"]["exceptionDetails"]["text"])

    def look(self, width, height, dark=False, phone=False, scale=1):
        """The size of the window, and what its user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete' && location.href != 'about:blank'")

    def ask(self, expression):
        """The value of a JavaScript expression."""
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']['text']}")
        return r["result"].get("value")

    def wait(self, expression, timeout=30):
        """Until the expression is true; while a page goes and another comes there is nobody to ask."""
        end = time.monotonic() + timeout
        while True:
            try:
                if value := self.ask(expression):
                    return value
            except RuntimeError:
                if self.proc.poll() is not None:
                    raise
            if time.monotonic() > end:
                raise TimeoutError(f"waited {timeout} s for {expression}")
            time.sleep(0.05)

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        for fd in (self._in, self._out):
            os.close(fd)
        try:
            self.proc.wait(5)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
