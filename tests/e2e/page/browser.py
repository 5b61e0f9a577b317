"""A headless Chromium, driven through chromedriver by the plain WebDriver protocol."""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


class NoBrowser(Exception):
    """There is none, or it cannot start here."""


class Browser:
    def __init__(self, width=1280, height=900, dark=False, sandbox=os.geteuid() != 0):
        """Without its sandbox it starts as root, and where a container forbids namespaces."""
        if not shutil.which("chromedriver") or not shutil.which("chromium"):
            raise NoBrowser("no chromium or chromedriver here (Debian: chromium, chromium-driver)")
        self.folder = tempfile.mkdtemp(prefix="ullage-browser-")
        self.session = None
        environment = dict(os.environ, HOME=self.folder, XDG_CONFIG_HOME=self.folder, XDG_CACHE_HOME=self.folder)
        for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"):
            environment.pop(name, None)
        log = open(os.path.join(self.folder, "driver.log"), "wb+")
        # Port 0: a free one, which it tells; a process group of its own, so that no part of it is left.
        # Should this program be killed, the driver goes with it, and Chromium when its pipe to the driver ends.
        prctl = ctypes.CDLL(None).prctl
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, env=environment, start_new_session=True,
                                       preexec_fn=lambda: prctl(1, signal.SIGKILL))
        try:
            self.address = f"http://127.0.0.1:{self._port(log.name)}"
            self._begin(width, height, dark, sandbox)
        except BaseException:
            self.close()
            raise

    def _port(self, log):
        for _ in range(300):
            with open(log, encoding="utf-8", errors="replace") as text:
                words = text.read()
            started = (re.search(r"started successfully on port (\d+)", words) or
                       re.search(r"on port ([1-9]\d*)[\s\S]*started successfully", words))
            if started:
                return int(started.group(1))
            if self.driver.poll() is not None:
                break
            time.sleep(0.1)
        raise NoBrowser("chromedriver does not start: " + words[-300:])

    def _begin(self, width, height, dark, sandbox):
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
                     "--force-device-scale-factor=1", f"--window-size={width},{height}",
                     f"--user-data-dir={self.folder}/profile"]
        if not sandbox:
            arguments.append("--no-sandbox")
        if dark:
            arguments.append("--blink-settings=preferredColorScheme=0")
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")},
                  "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            self.session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}}, 60)["sessionId"]
        except (RuntimeError, OSError) as why:
            raise NoBrowser(f"chromium does not start: {str(why)[:300]}") from why

    def _call(self, method, path, body=None, limit=60):
        request = urllib.request.Request(self.address + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=limit) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode(errors="replace")) from error

    @classmethod
    def start(cls):
        """Any that starts."""
        try:
            return cls()
        except NoBrowser:
            return cls(sandbox=False)

    def call(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def open(self, file):
        """Seconds until the page is drawn."""
        begin = time.monotonic()
        self.call("POST", "/url", {"url": "file://" + os.path.abspath(file)})
        for _ in range(1000):
            if self.run("return document.documentElement.dataset.ready === 'yes'"):
                return time.monotonic() - begin
            time.sleep(0.02)
        raise RuntimeError(f"{file} is never ready: {self.errors()}")

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def errors(self):
        """What the console says since it was asked last."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]

    def pointer(self, *steps):
        """Each step is ("move", x, y), ("down",) or ("up",); places are in the window."""
        actions = []
        for step in steps:
            if step[0] == "move":
                actions.append({"type": "pointerMove", "duration": 20, "x": round(step[1]), "y": round(step[2])})
            else:
                actions.append({"type": "pointer" + step[0].title(), "button": 0})
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    def keys(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def settle(self):
        """Until what was asked for in an animation frame is drawn."""
        self.call("POST", "/execute/async", {
            "script": "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));",
            "args": []})

    def close(self):
        try:
            if self.session:
                self.call("DELETE", "")
        except (RuntimeError, OSError):
            pass
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.driver.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
