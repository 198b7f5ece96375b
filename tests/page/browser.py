"""A headless Chromium, driven by the DevTools protocol over a pipe: no driver, no library.

Messages are JSON, each ended by a NUL, on the browser's descriptors 3 (in) and 4 (out)."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE_S = 20


class Browser:
    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="xnord-page-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # sh puts the two pipes where the browser looks for them.
        command = (f"exec 3<&{to_browser} 4>&{from_browser}; exec \"$@\"")
        self._process = subprocess.Popen(
            ["bash", "-c", command, "sh", program, "--headless=new", "--remote-debugging-pipe",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--hide-scrollbars", "--force-color-profile=srgb",
             f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._answers = {}
        self._events = []

    def send(self, method, session=None, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._number

    def call(self, method, session=None, **parameters):
        number, until = self.send(method, session, **parameters), time.monotonic() + PATIENCE_S
        while number not in self._answers:
            self.pump(until - time.monotonic(), method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def pump(self, seconds, what):
        """Takes in what the browser says, for at most so long until it says something."""
        if not select.select([self._in], [], [], max(seconds, 0))[0]:
            raise AssertionError(f"the browser does not answer to {what}")
        piece = os.read(self._in, 1 << 20)
        if not piece:
            raise AssertionError("the browser has ended")
        *messages, self._buffer = (self._buffer + piece).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._events.append(message)

    def events(self, session):
        """Those of a page since the last time."""
        mine = [event for event in self._events if event.get("sessionId") == session]
        self._events = [event for event in self._events if event.get("sessionId") != session]
        return mine

    def close(self):
        try:
            self.send("Browser.close")
            self._process.wait(5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """A tab of its own, with its own storage. Keeps every complaint of the console, the network and
    the security policy."""

    def __init__(self, browser, width=1280, height=900, dark=False, still=False):
        self.browser = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank",
                                   browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target,
                                    flatten=True)["sessionId"]
        self.complaints = []
        self.requests = []
        for domain in ("Page", "Runtime", "Log", "Network", "Audits", "Accessibility", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}])
        self.resize(width, height)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, expression):
        """The value of an expression of JavaScript, awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=PATIENCE_S):
        until = time.monotonic() + seconds
        while not (value := self.run(expression)):
            if time.monotonic() > until:
                raise AssertionError(f"this does not come true: {expression}")
            time.sleep(0.02)
        return value

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def key(self, name, text=None, modifiers=0):
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
                 "ArrowDown": 40, "Escape": 27}
        text = {"Enter": "\r", " ": " "}.get(name, text)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                      windowsVirtualKeyCode=codes.get(name, ord(name[0].upper())),
                      modifiers=modifiers, **({"text": text} if text and kind == "keyDown" else {}))

    def mouse(self, kind, x, y, pressed=True):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y,
                  button="left" if pressed else "none", buttons=int(pressed), clickCount=1)

    def box(self, selector):
        """Left, top, width, height of an element, brought into view."""
        return self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                        "e.scrollIntoView({block: 'center', behavior: 'instant'});"
                        "const b = e.getBoundingClientRect();"
                        "return [b.left, b.top, b.width, b.height]; })()")

    def screenshot(self, path, whole=True):
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def collect(self):
        """Complaints so far: errors and warnings of the console, exceptions, violations of the
        policy, failed requests. Not what is about speed: the tests themselves read pixels."""
        for event in self.browser.events(self.session):
            method, what = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                self.complaints.append(what["exceptionDetails"].get("exception", {}).get(
                    "description", what["exceptionDetails"]["text"]))
            elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
                self.complaints.append(f"console.{what['type']}: {what['args']}")
            elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning") \
                    and "readback" not in what["entry"]["text"]:
                self.complaints.append(f"{what['entry']['source']}: {what['entry']['text']} "
                                       f"{what['entry'].get('url', '')}")
            elif method == "Audits.issueAdded" and what["issue"]["code"] != "PerformanceIssue":
                self.complaints.append(f"issue: {json.dumps(what['issue'])[:600]}")
            elif method == "Network.requestWillBeSent":
                self.requests.append(what["request"]["url"])
        return self.complaints

    def close(self):
        self.collect()
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
