#!/usr/bin/env python3
"""Opens the report, the logbook and the stand-alone roofline in headless Chromium.

usage: report_browser_test.py PROGRAM     (PROGRAM is the built tests/report_page)

Asserts: no console message, no request beyond the page itself, every chart drawn, no sideways scrolling at 390 px,
readable with JavaScript disabled, sufficient contrast in light and dark mode, and a printable page.
Exit code 77 (a skip for CTest) without Chromium.
"""
import base64
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

WIDE, PHONE = 1280, 390
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Browser:
    """Chromium's DevTools protocol over a pipe: JSON messages that end in a zero byte."""

    def __init__(self, profile):
        read_end, self._to = os.pipe()
        self._from, write_end = os.pipe()
        # Chromium reads on descriptor 3 and writes on 4; move our own descriptors out of the way first.
        child = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (read_end, write_end)]

        def place():
            os.dup2(child[0], 3)
            os.dup2(child[1], 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                 f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen([CHROMIUM, *flags], preexec_fn=place, pass_fds=(3, 4),
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (read_end, write_end, *child):
            os.close(end)
        self._pending, self._next, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _receive(self):
        while b"\0" not in self._pending:
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium ended early; run it by hand to see why: " + CHROMIUM)
            self._pending += chunk
        message, self._pending = self._pending.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, dark=False, script=True):
        self.events.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                  mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path, x=0, y=0, width=WIDE, height=1200):
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        data = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# Charts with marks of no size or outside their frame.
BROKEN_CHARTS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect(), name = svg.querySelector('title').textContent, bad = [];
  if (frame.width < 100 || frame.height < 50) bad.push(name + ': has no size');
  const marks = [...svg.querySelectorAll('circle, rect, path, line, text, polyline')];
  if (marks.length < 8) bad.push(name + ': only ' + marks.length + ' elements');
  for (const mark of marks) {
    const box = mark.getBoundingClientRect();
    if (mark.tagName !== 'rect' && box.width + box.height <= 0) bad.push(name + ': empty ' + mark.outerHTML);
    if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 ||
        box.bottom > frame.bottom + 2) bad.push(name + ': outside its frame: ' + mark.outerHTML);
  }
  return bad;
})"""

# Overlapping words of one chart.
COVERED_WORDS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const words = [...svg.querySelectorAll('text:not([transform])')].map(t => [t.textContent, t.getBoundingClientRect()]);
  const bad = [];
  for (let i = 0; i < words.length; ++i) for (let j = 0; j < i; ++j) {
    const a = words[i][1], b = words[j][1];
    const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (x > 2 && y > 4) bad.push(svg.querySelector('title').textContent + ': ' + words[j][0] + ' / ' + words[i][0]);
  }
  return bad;
})"""

# Text whose contrast with the page is under 4.5 (WCAG 2.2, 1.4.3).
FAINT_TEXT = """(() => {
  const numbers = c => c.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const luminance = c => numbers(c).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const paper = luminance(getComputedStyle(document.body).backgroundColor), bad = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (['title', 'desc', 'STYLE'].includes(e.tagName)) continue;
    const style = getComputedStyle(e), colour = e instanceof SVGElement ? style.fill : style.color;
    const ink = luminance(colour);
    const contrast = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    if (contrast < 4.5) bad.add(colour + ' ' + contrast.toFixed(2) + ' ' + e.textContent.slice(0, 40));
  }
  return [...bad];
})()"""

REPEATED_IDS = """(() => { const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  return ids.filter((id, i) => ids.indexOf(id) !== i); })()"""
DEAD_LINKS = """[...document.querySelectorAll('a[href^="#"]')].map(a => a.getAttribute('href').slice(1))
  .filter(id => !document.getElementById(id))"""
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print("FAILED:", message)


def expect_silence(browser, where):
    for event in browser.events:
        if event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            expect(False, f"{where}: console message {event['params']}")
        if event.get("method") == "Network.requestWillBeSent":
            url = event["params"]["request"]["url"]
            expect(url.startswith(("file:", "data:")), f"{where}: asks for {url}")


def expect_page(browser, path, charts):
    for width in (WIDE, PHONE):
        for dark in (False, True):
            where = f"{path.name} at {width} px{', dark' if dark else ''}"
            browser.open(path, width, dark)
            expect(browser.evaluate("document.querySelectorAll('svg').length") >= charts, f"{where}: charts missing")
            for name, script in (("broken chart", BROKEN_CHARTS), ("words cover words", COVERED_WORDS),
                                 ("faint text", FAINT_TEXT), ("repeated id", REPEATED_IDS), ("dead link", DEAD_LINKS)):
                found = browser.evaluate(script)
                expect(found == [], f"{where}: {name}: {found}")
            sideways = browser.evaluate(SIDEWAYS)
            expect(sideways <= 0, f"{where}: scrolls sideways by {sideways} px")
            expect_silence(browser, where)


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 5
    if not CHROMIUM:
        print("SKIPPED: needs_library, chromium: install the package chromium to run this test")
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pages = pathlib.Path(folder)
        subprocess.run([sys.argv[1], folder], check=True)
        started = time.monotonic()
        browser = Browser(pages / "profile")
        try:
            expect_page(browser, pages / "report.html", 12)
            expect_page(browser, pages / "index.html", 0)
            expect_page(browser, pages / "empty.html", 0)

            # The check must be able to fail: a page that is too wide is seen as such.
            wide = pages / "wide.html"
            wide.write_text((pages / "empty.html").read_text().replace("<main>", "<main><pre style='width:999px'>x</pre>"))
            browser.open(wide, PHONE)
            expect(browser.evaluate(SIDEWAYS) > 0, "the check for sideways scrolling does not see a wide page")

            # Without scripts the page is the same to the pixel, since it has none.
            browser.open(pages / "report.html", WIDE)
            browser.screenshot(pages / "with.png")
            browser.open(pages / "report.html", WIDE, script=False)
            browser.screenshot(pages / "without.png")
            expect((pages / "with.png").read_bytes() == (pages / "without.png").read_bytes(),
                   "report.html looks different without JavaScript")
            expect("<script" not in (pages / "report.html").read_text(), "report.html holds a script")

            browser.open(pages / "report.html", WIDE)
            pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
            expect(pdf.startswith(b"%PDF") and len(pdf) > 20000, "report.html does not print")

            browser.open(pages / "roofline.svg", WIDE)
            expect(browser.evaluate("document.documentElement.tagName") == "svg", "roofline.svg is not well-formed XML")
            expect(browser.evaluate("document.querySelectorAll('.roof').length") >= 5, "roofline.svg lacks roofs")
            expect_silence(browser, "roofline.svg")
        finally:
            browser.close()
        print(f"{'FAILED' if failures else 'ok'}: {len(failures)} failures in {time.monotonic() - started:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
