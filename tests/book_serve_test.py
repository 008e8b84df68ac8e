#!/usr/bin/env python3
"""The book's server: who may ask for a run, what a run leaves, and the page that asks for one.

usage: book_serve_test.py FATHOM

Real clients against `fathom book --serve` of a small book with the book's own theme and extension: sockets, and
Chromium, which is left out where it is missing. The reader's records, the history and the artifacts are in a folder of the
test. Exit code 77 (a skip for CTest) without Debian's Sphinx and MyST (packages-book.txt).
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from report_browser_test import CHROMIUM, FAINT_TEXT, PHONE, SIDEWAYS, WIDE, Browser  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
FATHOM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
EXPERIMENT = "ch08/accumulators"  # the quickest of the book's
LONG = "ch08/simd_dot"  # for more than ten seconds
DEADLINE_S = 60
PAGE = """# A page

:::{predict} p1
:question: How many?
:answer: cpu:ch08/accumulators/eight_chains ratio
Many.
:::

:::{record-figure} ladder
:experiment: ch08/accumulators
:machines: cpu
:y: share
:alt: Shares.
:name: fig-chains
The chains.
:::

SPACE

:::{record-figure} ladder
:experiment: ch08/simd_dot
:machines: cpu
:at: n=16384
:y: time
:alt: Times.
:name: fig-dot
The dot product.
:::

:::{run} fathom run ch08:accumulators ch08:simd_dot
:::

SPACE
""".replace("SPACE", "\n\n".join(f"Line {i}." for i in range(40)))


def until(condition, what, seconds=DEADLINE_S):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return value


def children(pid):
    """All processes below this one."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
        except OSError:
            pass  # ended meanwhile
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.data = folder / "data/fathom/results"
        self.env = dict(os.environ, XDG_DATA_HOME=str(folder / "data"), FATHOM_HISTORY=str(folder / "history.sqlite"),
                        FATHOM_ARTIFACTS_DIR=str(folder / "artifacts"), FATHOM_PROGRAM=FATHOM)
        (folder / "book").mkdir(exist_ok=True)
        (folder / "book/index.md").write_text(PAGE)
        self.process = subprocess.Popen([ROOT / "tools/serve_book", "--port", "0", "--book", folder / "book", "--build", folder / "build"],
                                        env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/#token=([\w-]+)", said)
        if not found:
            self.process.kill()
            raise AssertionError("the server did not start: " + said + self.process.stdout.read())
        self.port, self.token = int(found[1]), found[2]
        self.address = found[0]

    def request(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, answer.headers

    def post(self, path, body, **headers):
        status, text, _ = self.request("POST", "/_serve/" + path, body if isinstance(body, str) else json.dumps(body),
                                       **{"X_Fathom_Token": self.token, **headers})
        return status, json.loads(text)

    def state(self):
        return json.loads(self.request("GET", "/_serve/state")[1])

    def idle(self):
        return until(lambda: (state := self.state())["phase"] == "idle" and state, "the server is idle")

    def running(self):
        """What the server has started, once `fathom run` has a child that measures."""
        return until(lambda: (found := children(self.process.pid)) and len(found) >= 2 and found, "an experiment runs")

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(20)
        self.process.stdout.close()


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.results = sorted((path, path.stat().st_mtime_ns) for path in (ROOT / "results").rglob("*"))
        cls.server = Server(cls.folder)
        cls.addClassCleanup(cls.server.close)

    def test_the_served_page_has_the_script_and_the_file_has_not(self):
        status, page, headers = self.server.request("GET", "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("/_serve/run.js", page)
        self.assertNotIn("_serve", (self.folder / "build/html/index.html").read_text())
        self.assertNotIn(self.server.token, page + self.server.request("GET", "/_serve/state")[1])
        self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])

    def test_only_this_machine_is_listened_to(self):
        sockets = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", name).read_text().splitlines()[1:]]
        port = f":{self.server.port:04X}"
        self.assertEqual([s[1] for s in sockets if s[1].endswith(port) and s[3] == "0A"], ["0100007F" + port])

    def test_a_run_needs_the_token(self):
        for token in ("", "x", self.server.token[:-1], self.server.token + "x", "\u00e9"):
            for path in ("run", "cancel"):
                status, said = self.server.post(path, {"experiment": EXPERIMENT}, X_Fathom_Token=token)
                self.assertEqual(status, 403, token)
                self.assertIn("token", said["error"])
        self.assertEqual(self.server.request("POST", "/_serve/run", "{}")[0], 403)

    def test_another_name_or_origin_is_refused(self):
        for host in ("evil.example", f"evil.example:{self.server.port}", "127.0.0.1", f"127.0.0.1:{self.server.port + 1}"):
            self.assertEqual(self.server.post("run", {"experiment": EXPERIMENT}, Host=host)[0], 403, host)
            for path in ("/", "/_serve/state"):
                self.assertEqual(self.server.request("GET", path, Host=host)[0], 403, host)
        for origin in ("http://evil.example", "null", f"https://127.0.0.1:{self.server.port}", f"http://127.0.0.1:{self.server.port + 1}"):
            self.assertEqual(self.server.post("run", {"experiment": EXPERIMENT}, Origin=origin)[0], 403, origin)
        self.assertEqual(self.server.request("GET", "/", Host=f"localhost:{self.server.port}")[0], 200)

    def test_only_experiments_of_run_lines(self):
        touched = self.folder / "touched"
        for name in ("ch08/accumulatorz", "ch07/false_sharing", "ch08:accumulators", f"ch08/accumulators; touch {touched}", "--help", "",
                     None, ["ch08/accumulators"], {"a": 1}):
            status, said = self.server.post("run", {"experiment": name})
            self.assertEqual(status, 404, name)
            self.assertIn(str(name), said["error"])
        self.assertIn("nearest: ch08/accumulators", self.server.post("run", {"experiment": "ch08/accumulatorz"})[1]["error"])
        self.assertFalse(touched.exists())
        self.assertEqual(self.server.state()["phase"], "idle")

    def test_requests_that_are_none(self):
        for body in ("", "[]", "{", "1", "\x00"):
            self.assertEqual(self.server.post("run", body)[0], 400, body)
        self.assertEqual(self.server.post("run", "x" * 2000)[0], 413)
        self.assertEqual(self.server.post("run", "{}", Content_Length="-1")[0], 413)
        self.assertEqual(self.server.post("stop", {})[0], 404)
        self.assertEqual(self.server.request("PUT", "/")[0], 501)

    def test_nothing_outside_the_site_is_sent(self):
        (self.folder / "build/secret.html").write_text("secret")
        link = self.folder / "build/html/link.html"
        link.symlink_to(self.folder / "build/secret.html")
        self.addCleanup(link.unlink)
        for path in ("/../secret.html", "/%2e%2e/secret.html", "/..%2fsecret.html", "/chapters/../../secret.html", "/link.html",
                     str(self.folder / "build/secret.html"), "/" + str(self.folder / "build/secret.html"), "/_static/%00.html",
                     "/" + "a" * 5000 + ".html", "/nothing.html", "/_static"):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=DEADLINE_S) as client:
                client.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{self.server.port}\r\n\r\n".encode())
                answer = client.makefile("rb").read()
            self.assertIn(b" 404 ", answer.splitlines()[0], path)
            self.assertNotIn(b"secret", answer)

    def test_one_run_at_a_time_and_its_cancellation(self):
        self.server.idle()
        self.assertEqual(self.server.post("run", {"experiment": EXPERIMENT})[0], 202)
        started = self.server.running()
        for name in (EXPERIMENT, "ch08/simd_dot"):
            status, said = self.server.post("run", {"experiment": name})
            self.assertEqual(status, 409)
            self.assertIn("ch08:accumulators is running", said["error"])
        self.assertEqual(self.server.post("cancel", {})[0], 200)
        self.assertIn("was cancelled", self.server.idle()["said"])
        until(lambda: not any(map(alive, started)), "the cancelled run has ended")
        self.assertEqual(list(self.server.data.rglob("*.json")), [])

    def test_the_projects_records_stay(self):
        self.assertEqual(sorted((path, path.stat().st_mtime_ns) for path in (ROOT / "results").rglob("*")), self.results)


class Ends(unittest.TestCase):
    def test_no_child_outlives_the_server(self):
        with tempfile.TemporaryDirectory() as name:
            for number, code in ((signal.SIGKILL, -9), (signal.SIGINT, 0), (signal.SIGTERM, 0)):
                server = Server(pathlib.Path(name))
                self.assertEqual(server.post("run", {"experiment": LONG})[0], 202)
                started = server.running()
                if number == signal.SIGKILL:  # past its first line, whose broken pipe would end it too
                    until(lambda: server.state()["seconds"] > 3, "the run has begun")
                server.process.send_signal(number)
                self.assertEqual(server.process.wait(20), code)
                until(lambda: not any(map(alive, started)), f"everything has ended after signal {number}", 4)
                server.process.stdout.close()


class Verb(unittest.TestCase):
    def test_what_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([FATHOM, "book", "--no-open"], cwd=folder, capture_output=True, text=True)
            self.assertEqual(result.returncode, 5)
            self.assertIn("--source-dir", result.stderr)
            result = subprocess.run([FATHOM, "book", "--source-dir", folder], capture_output=True, text=True)
            self.assertEqual(result.returncode, 5)
            self.assertIn("tools/build_book", result.stderr)
            # A path on which there is neither clang-14 nor node.
            for tool in ("bash", "dirname", "env"):
                os.symlink(shutil.which(tool), pathlib.Path(folder) / tool)
            result = subprocess.run([FATHOM, "book", "--no-open"], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ, PATH=folder))
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertIn("tools/install_packages packages-book.txt", result.stderr)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            result = subprocess.run([FATHOM, "book", "--serve", "--no-open", "--port", str(taken.getsockname()[1])], cwd=ROOT,
                                    capture_output=True, text=True)
        self.assertEqual(result.returncode, 5)
        self.assertIn("--port", result.stderr)


@unittest.skipUnless(CHROMIUM, "needs Chromium")
class InABrowser(unittest.TestCase):
    def open(self, address, width, dark=False):
        self.browser.events.clear()
        self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 600)
        self.browser.call("Emulation.setEmulatedMedia", media="screen",
                          features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.browser.call("Page.navigate", url=address)
        self.browser.wait_for("Page.loadEventFired")  # until then the page of before may answer
        until(lambda: self.browser.evaluate("document.querySelectorAll('.run-button').length") == 2, "the buttons are there")

    def check(self):
        self.assertLessEqual(self.browser.evaluate(SIDEWAYS), 0, "scrolls sideways")
        self.assertEqual(self.browser.evaluate(FAINT_TEXT), [])
        for event in self.browser.events:
            self.assertNotIn(event.get("method"), ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"), event)
            if event.get("method") == "Network.requestWillBeSent":
                self.assertTrue(event["params"]["request"]["url"].startswith((self.server.address.split("#")[0], "data:")), event)

    def panels(self, figure):
        return self.browser.evaluate(f"[...document.querySelectorAll('#{figure} .panel')].map(p => p.dataset.machine)")

    def said(self):
        return self.browser.evaluate("document.querySelector('.run-said').textContent")

    def test_a_run_draws_the_figure_again(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.server = Server(pathlib.Path(folder.name))
        self.addCleanup(self.server.close)
        # What cannot be read must not cost the reader the book.
        broken = self.server.data / "broken/ch08/accumulators.json"
        broken.parent.mkdir(parents=True)
        broken.write_text("{")
        until(lambda: self.server.state()["version"] == 1, "the book is built without it")
        self.browser = Browser(str(pathlib.Path(folder.name) / "profile"))
        self.addCleanup(self.browser.close)
        self.server.idle()
        self.open(self.server.address, PHONE, dark=True)
        self.check()
        self.assertEqual(self.browser.evaluate("location.hash"), "", "the token is in the address")
        self.assertEqual(self.panels("fig-chains"), ["epyc-zen4-2c"])

        # A prediction, an open table, and a place in the page, which all have to stay.
        self.open(self.server.address.split("#")[0], WIDE)
        self.browser.evaluate("""{ const form = document.querySelector('form.guess'); form.querySelector('input').value = '7';
            form.requestSubmit(); document.querySelector('#fig-chains details').open = true;
            history.replaceState(null, '', '#widget?a=1');
            const button = document.querySelector('.run-button'); button.scrollIntoView({block: 'center'});
            document.querySelector('.run-tools input').click(); button.focus(); }""")
        before = self.browser.evaluate("document.querySelector('.run-button').getBoundingClientRect().top")
        self.browser.key("Enter")
        until(lambda: "is running" in self.said(), "the page says that it runs")
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('.run-button')].map(b => b.ariaDisabled)"), ["true", "true"])
        self.assertFalse(self.browser.evaluate("document.querySelector('.run-cancel').hidden"))
        until(lambda: "Drawn again" in self.said(), "the page says what it has drawn: " + self.said())
        self.assertIn("quick: one point", self.said())
        yours, reference = self.panels("fig-chains")
        self.assertTrue(yours.startswith("yours "), yours)
        self.assertEqual(reference, "epyc-zen4-2c")
        self.assertEqual(self.panels("fig-dot"), ["epyc-zen4-2c"])
        self.assertIn("a quick run", self.browser.evaluate("document.querySelector('#fig-chains .yours').textContent"))
        (record,) = (self.server.data / yours.split()[1]).rglob("*.json")
        written = json.loads(record.read_text())
        self.assertEqual((written["experiments"][0]["id"], written["manifest"]["quick"]), (EXPERIMENT, True))
        self.assertEqual(self.browser.evaluate("document.querySelector('form.guess input').value"), "7")
        self.assertTrue(self.browser.evaluate("document.querySelector('#fig-chains [data-machine=epyc-zen4-2c] details').open"))
        self.assertEqual(self.browser.evaluate("location.hash"), "#widget?a=1")
        self.assertTrue(self.browser.evaluate("document.activeElement.matches('.run-button')"))
        after = self.browser.evaluate("document.querySelector('.run-button').getBoundingClientRect().top")
        self.assertAlmostEqual(before, after, delta=2, msg="the page has moved")
        self.check()
        self.browser.click(".redrawn")
        self.assertEqual(self.browser.evaluate("document.activeElement.id"), "fig-chains")
        self.assertEqual(self.browser.evaluate("location.hash"), "#widget?a=1")

        # A record that a terminal writes is noticed: one of another machine, with a name that is no HTML.
        other = self.server.data / "<b>other" / record.parent.name
        other.mkdir(parents=True)
        shutil.copy(record, other)
        until(lambda: len(self.panels("fig-chains")) == 3, "the other machine is drawn")
        self.assertIn("a new record of ch08:accumulators", self.said())
        self.assertFalse(self.browser.evaluate("[...document.querySelectorAll('#fig-chains b')].length"))
        self.check()
        # And one that goes.
        shutil.rmtree(other.parent)
        until(lambda: len(self.panels("fig-chains")) == 2, "the other machine has gone")

        # The figure that the quick run gives no point for says so.
        shutil.copy(record, record.with_name("simd_dot.json"))
        text = record.read_text().replace("ch08/accumulators", "ch08/simd_dot")
        record.with_name("simd_dot.json").write_text(text)
        until(lambda: len(self.panels("fig-dot")) == 2, "the record without a point is named")
        self.assertIn("It was a quick run", self.browser.evaluate("document.querySelector('#fig-dot .yours').textContent"))
        self.check()


if __name__ == "__main__":
    if subprocess.run(["/usr/bin/python3", "-c", "import sphinx, myst_parser"], capture_output=True).returncode != 0:
        print("skipped: Debian's Sphinx or MyST is missing (packages-book.txt)")
        sys.exit(77)
    unittest.main()
