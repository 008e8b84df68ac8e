#!/usr/bin/env python3
"""Opens the report, the logbook, the page of bars and the stand-alone roofline in headless Chromium.

usage: report_browser_test.py PROGRAM     (PROGRAM is the built tests/report_page)

Asserts, in a wide window and on a phone: the first screen has the picture and the most instructive results, nothing
overflows, no word covers another, sort, filter, links and keys work, rows open without JavaScript, a run of 205
experiments, 85 of which were measured, is at most 6,000 px tall (8,000 on a phone), contrast suffices in light and dark mode, the page prints, and neither a console
message nor a request beyond the page itself.
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

WIDE, PHONE = 1400, 390
HEIGHTS = {WIDE: 900, PHONE: 844}
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
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHTS[width], deviceScaleFactor=1,
                  mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def wait_for(self, method):
        """Until an event of this name has come, since the events were cleared."""
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def click(self, selector):
        at = self.evaluate(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center'}}); const box = e.getBoundingClientRect();
            return [box.left + Math.min(box.width, 60) / 2, box.top + box.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

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

# Overlapping words of one chart or of one axis.
COVERED_WORDS = """[...document.querySelectorAll('svg, .plot, .iv.ticks')].flatMap(chart => {
  if (chart.closest('thead') && getComputedStyle(chart.closest('thead')).position === 'absolute') return [];  // not shown
  const words = [...chart.querySelectorAll('text:not([transform]), small, .badge')]
    .map(t => [t.textContent, t.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
  const bad = [];
  for (let i = 0; i < words.length; ++i) for (let j = 0; j < i; ++j) {
    const a = words[i][1], b = words[j][1];
    const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (x > 2 && y > 4) bad.push((chart.className.baseVal ?? chart.className) + ': ' + words[j][0] + ' / ' + words[i][0]);
  }
  return bad;
})"""

# Boxes that stick out of the window or of the box around them, apart from those that scroll, and words that are cut off
# without an ellipsis.
OVERFLOWING = """[...document.querySelectorAll('body *')].flatMap(e => {
  const box = e.getBoundingClientRect(), bad = [];
  if (box.width === 0 || e.closest('svg, .scroll, thead, option, .plot') || e.matches('br, i')) return bad;
  const what = e.tagName + '.' + e.className + ' ' + e.textContent.trim().slice(0, 40);
  if (box.right > innerWidth + 1 || box.left < -1) bad.push(what + ' leaves the window by ' + (box.right - innerWidth));
  const style = getComputedStyle(e);
  if (style.display !== 'inline' && e.scrollWidth > e.clientWidth + 1 && style.textOverflow !== 'ellipsis' &&
      !e.matches('select, input')) bad.push(what + ' is too narrow for ' + e.scrollWidth + ' px');
  return bad;
})"""

OPEN_ALL = "document.querySelectorAll('details').forEach(row => { row.open = true; })"
ROWS = "[...document.querySelectorAll('.row')].filter(row => !row.hidden).map(row => row.dataset.id)"

# Text whose contrast with the page is under 4.5 (WCAG 2.2, 1.4.3).
FAINT_TEXT = """(() => {
  const numbers = c => c.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const luminance = c => numbers(c).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const bad = new Set(), papers = new Map(), behind = e => {
    if (!e) return luminance(getComputedStyle(document.body).backgroundColor);
    if (!papers.has(e)) {
      const colour = getComputedStyle(e).backgroundColor;
      papers.set(e, /, 0\\)$|transparent/.test(colour) ? behind(e.parentElement) : luminance(colour));
    }
    return papers.get(e);
  };
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (['title', 'desc', 'STYLE', 'SCRIPT', 'OPTION'].includes(e.tagName)) continue;
    const style = getComputedStyle(e), colour = e instanceof SVGElement ? style.fill : style.color;
    const ink = luminance(colour), paper = behind(e instanceof SVGElement ? e.closest('svg') : e);
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
            expect(browser.evaluate(SIDEWAYS) <= 0, f"{where}: scrolls sideways before anything is opened")
            expect(browser.evaluate(OVERFLOWING) == [], f"{where}: overflows: {browser.evaluate(OVERFLOWING)}")
            browser.evaluate(OPEN_ALL)
            expect(browser.evaluate("document.querySelectorAll('svg').length") >= charts, f"{where}: charts missing")
            for name, script in (("broken chart", BROKEN_CHARTS), ("words cover words", COVERED_WORDS), ("overflow", OVERFLOWING),
                                 ("faint text", FAINT_TEXT), ("repeated id", REPEATED_IDS), ("dead link", DEAD_LINKS)):
                found = browser.evaluate(script)
                expect(found == [], f"{where}: {name}: {found}")
            sideways = browser.evaluate(SIDEWAYS)
            expect(sideways <= 0, f"{where}: scrolls sideways by {sideways} px")
            expect_silence(browser, where)


def expect_bars(browser, path):
    for width in (WIDE, PHONE):
        browser.open(path, width)
        cut = browser.evaluate("[...document.querySelectorAll('.scroll')].map(box => box.scrollWidth - box.clientWidth)")
        expect(max(cut) <= 0, f"{path.name} at {width} px: tables are cut by {cut} px")
        bars = browser.evaluate("[...document.querySelectorAll('td.bar div')].map(bar => bar.getBoundingClientRect().width)")
        expect(max(bars) > width / 4, f"{path.name} at {width} px: the longest bar has {max(bars)} px")
        expect(abs(bars[0] / bars[2] - 812.3 / 4200) < 0.01, f"{path.name} at {width} px: bars are no shares: {bars}")


def bottom_of(browser, selector):
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().bottom")


def expect_first_screen(browser, path, width):
    browser.open(path, width)
    for selector in (".headline", ".plot", ".lessons li:last-child", "#doubts"):
        bottom = bottom_of(browser, selector)
        expect(bottom <= HEIGHTS[width], f"{path.name} at {width} px: {selector} ends at {bottom:.0f} px, below the fold")
    count = browser.evaluate("document.querySelectorAll('.lessons li').length")
    expect(count == (5 if path.name == "large.html" else 4), f"{path.name}: {count} instructive results")
    height = browser.evaluate("document.documentElement.scrollHeight")
    expect(height <= (6000 if width == WIDE else 8000), f"{path.name} at {width} px: {height} px tall")


def expect_sorting(browser, path, width):
    for column in ("gain", "share"):
        browser.open(path, width)
        values = f"[...document.querySelectorAll('.row')].map(row => row.dataset.{column} ? +row.dataset.{column} : null)"
        unsorted = browser.evaluate(values)
        for order in ("descending", "ascending"):
            browser.click(f".head [data-sort={column}] button")
            found = browser.evaluate(values)
            known = [value for value in found if value is not None]
            expect(known == sorted(known, reverse=order == "descending") and len(known) > 2,
                   f"at {width} px: {column} is not {order}: {found}")
            expect(found[:len(known)] == known, f"at {width} px: rows without a {column} are not last: {found}")
            state = browser.evaluate(f"document.querySelector('.head [data-sort={column}] button').getAttribute('aria-sort')")
            expect(state == order, f"at {width} px: the column {column} says {state}, not {order}")
        expect(sorted(map(str, unsorted)) == sorted(map(str, found)), f"sorting by {column} loses rows")
    browser.click(".head [data-sort=id] button")
    ids = browser.evaluate(ROWS)
    expect(ids == sorted(ids), f"at {width} px: not sorted by name: {ids}")


def expect_filters(browser, path, width):
    browser.open(path, width)
    every = browser.evaluate(ROWS)

    def choose(name, value):
        browser.evaluate(f"""(() => {{ const field = document.querySelector('.toolbar [name={name}]');
            field.value = {json.dumps(value)}; field.dispatchEvent(new Event('input', {{bubbles: true}})); }})()""")
        return browser.evaluate(ROWS)

    for name, value, expected in (("text", "TRANSPOSE column", ["ch07/transpose_cpu"]), ("text", "no such words", []),
                                  ("chapter", "ch12", ["ch12/work_queue_cpu"]),
                                  ("verdict", "INVALID", ["ch10/flash_attention_cpu"]),
                                  ("verdict", "advisory", ["ch03/huge_pages"]), ("technique", "tiling", every),
                                  ("technique", "register_blocking", ["ch09/matmul_cpu"])):
        found = choose(name, value)
        expect(found == expected, f"at {width} px: {name}={value} shows {found}")
        said = browser.evaluate("document.querySelector('.toolbar output').textContent")
        expect(said.startswith(str(len(expected))), f"at {width} px: {len(expected)} rows, and it says {said}")
        shown = browser.evaluate("!document.querySelector('.no-match').hidden")
        expect(shown == (not expected), f"at {width} px: the note that nothing matches is {shown}")
        choose(name, "")
    expect(browser.evaluate(ROWS) == every, f"at {width} px: an empty filter hides rows")


def expect_opening(browser, path, width):
    row = "document.querySelector('.row[data-id=\"ch07/transpose_cpu\"]')"
    browser.open(path, width)
    expect(not browser.evaluate(row + ".open"), "a row is open at first")
    browser.click(".row[data-id='ch07/transpose_cpu'] summary")
    expect(browser.evaluate(row + ".open"), f"at {width} px: a click does not open a row")
    expect(browser.evaluate(row + ".querySelector('.ladder').getBoundingClientRect().height > 50"), "the panel is empty")
    # A link to a row that a filter hides.
    browser.evaluate("document.querySelector('.toolbar').text.value = 'matmul';"
                     "document.querySelector('.toolbar').dispatchEvent(new Event('input'))")
    browser.evaluate("location.hash = '#' + document.querySelector('.lessons a').getAttribute('href').slice(1)")
    for _ in range(500):
        if browser.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
        time.sleep(0.02)
    expect(browser.evaluate("!!document.querySelector(location.hash).open && !document.querySelector(location.hash).hidden"),
           f"at {width} px: a link does not open its row")


def expect_keys(browser, path):
    browser.open(path, WIDE)
    focused = "document.activeElement.closest('.row')?.dataset.id"
    order = browser.evaluate(ROWS)
    for key, expected in (("j", order[0]), ("j", order[1]), ("k", order[0]), ("k", order[0])):
        browser.key(key)
        expect(browser.evaluate(focused) == expected, f"key {key} leads to {browser.evaluate(focused)}, not {expected}")
    browser.key("Enter")
    expect(browser.evaluate("document.querySelector('.row').open"), "Enter does not open the row")
    browser.key("/")
    expect(browser.evaluate("document.activeElement.name") == "text", "/ does not lead to the search")
    for letter in "jmatmul":  # letters are words there, not commands
        browser.key(letter)
    expect(browser.evaluate(ROWS) == [], f"the search holds {browser.evaluate('document.activeElement.value')}")
    browser.key("Escape")
    expect(browser.evaluate(ROWS) == order, "Escape does not clear the search")


def expect_readable_without_script(browser, path, width):
    browser.open(path, width, script=False)
    expect(browser.evaluate("document.querySelector('.toolbar').hidden"), "without JavaScript there are dead controls")
    browser.click(".row summary")
    expect(browser.evaluate("document.querySelector('.row').open"), f"at {width} px: no row opens without JavaScript")
    expect(len(browser.evaluate(ROWS)) == 6, "rows are missing without JavaScript")


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
            expect_page(browser, pages / "report.html", 11)
            expect_page(browser, pages / "large.html", 45)
            expect_page(browser, pages / "index.html", 0)
            expect_page(browser, pages / "empty.html", 0)
            expect_page(browser, pages / "metrics.html", 0)
            expect_bars(browser, pages / "metrics.html")

            # The check must be able to fail: a page that is too wide is seen as such.
            wide = pages / "wide.html"
            wide.write_text((pages / "empty.html").read_text().replace("<main>", "<main><pre style='width:999px'>x</pre>"))
            browser.open(wide, PHONE)
            expect(browser.evaluate(SIDEWAYS) > 0, "the check for sideways scrolling does not see a wide page")

            for width in (WIDE, PHONE):
                for page in ("report.html", "large.html"):
                    expect_first_screen(browser, pages / page, width)
                for check in (expect_sorting, expect_filters, expect_opening, expect_readable_without_script):
                    check(browser, pages / "report.html", width)
            expect_keys(browser, pages / "report.html")
            expect_silence(browser, "report.html in use")

            browser.open(pages / "large.html", WIDE)
            load = browser.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
            print(f"large.html: {(pages / 'large.html').stat().st_size / 1e6:.1f} MB, loaded in {load} ms")
            expect(load < 1000, f"large.html takes {load} ms to load: at most 1 s")

            browser.open(pages / "report.html", WIDE)
            browser.evaluate("document.querySelector('.row').open = true")
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
