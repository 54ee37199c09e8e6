"""Controls a headless Chromium through a pipe, with only Python's standard library.

`chromium.py --missing` prints why no browser is usable, or nothing.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time


def missing():
    """Why no browser is usable; empty if one is."""
    path = shutil.which("chromium")
    if not path:
        return "chromium is not installed (Debian: apt-get install chromium)"
    if "snap" in os.path.realpath(path):
        return "chromium is a snap here, which cannot read files of other programs"
    return ""


class CannotStart(Exception):
    pass


class Browser:
    """One page of a browser. Use it in a `with` statement, whose end closes the browser."""

    def __init__(self, seconds=30):
        self.seconds = seconds  # limit for an answer
        self.events = []
        self.number = 0
        self.buffer = b""

    def __enter__(self):
        """Raises CannotStart if the browser is not usable."""
        self.profile, self.process = tempfile.mkdtemp(prefix="chromium."), None
        try:
            self.start()
        except (OSError, TimeoutError, StopIteration) as error:
            self.__exit__()
            raise CannotStart(f"chromium does not start: {error}") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def three_and_four():
            # Duplicated first: 3 or 4 may be one of the pipes' own descriptors.
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        # Not close_fds, which would close 3 and 4 again.
        for end in (self.write_end, self.read_end):
            os.set_inheritable(end, False)
        try:
            self.process = subprocess.Popen(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--hide-scrollbars", "--allow-file-access-from-files",
                 f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"],
                close_fds=False, preexec_fn=three_and_four, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        finally:
            os.close(to_browser)
            os.close(from_browser)
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __exit__(self, *_):
        if self.process:
            try:
                self.session = None
                self.call("Browser.close")
                self.process.wait(timeout=10)
            except (OSError, TimeoutError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            import select
            if not select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"chromium did not answer within {self.seconds} s")
            piece = os.read(self.read_end, 1 << 20)
            if not piece:
                raise OSError("chromium exited")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        """Returns the result of a command of the DevTools protocol; keeps events that arrive before it."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.seconds
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise OSError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        deadline = time.monotonic() + self.seconds
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive(deadline))

    def open(self, address):
        """Loads a page. Returns what the browser complains about, one line each."""
        self.events = []
        result = self.call("Page.navigate", url=address)
        if result.get("errorText"):
            return [result["errorText"]]
        self.wait_for("Page.loadEventFired")
        return self.complaints()

    def complaints(self):
        found = []
        for event in self.events:
            what = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event.get("method") == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
                found.append(" ".join(str(value.get("value", value.get("description", "")))
                                      for value in what["args"]))
            elif event.get("method") == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(f"{what['entry']['text']} {what['entry'].get('url', '')}".strip())
            elif event.get("method") == "Network.requestWillBeSent":
                address = what["request"]["url"]
                if address.startswith(("http:", "https:", "ws:")):
                    found.append(f"requests {address} from the network")
        return found

    def size(self, width, height=900, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def value(self, expression):
        """The value of a JavaScript expression in the page, or of the promise that it returns."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise OSError(f"{expression}: {result['exceptionDetails']['text']}")
        return result["result"].get("value")

    def picture(self, path, clip=None):
        """Writes a PNG of the window, or of the rectangle (x, y, width, height) of the page."""
        parameters = {"format": "png"}
        if clip:
            x, y, width, height = clip
            parameters |= {"clip": {"x": x, "y": y, "width": width, "height": height, "scale": 1},
                           "captureBeyondViewport": True}
        data = self.call("Page.captureScreenshot", **parameters)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


if __name__ == "__main__":
    if sys.argv[1:] == ["--missing"]:
        print(missing())
