#!/usr/bin/env python3
"""Chats with the server's page in headless Chromium, against a scripted server.

usage: serve_page_test.py PAGE [SCREENSHOTS]     (PAGE is page.html as src/serve/embed.cmake joined it)

Asserts: a message is sent as typed and its answer shown while it streams; markup from the model, the server and the user
is shown as text; Stop ends the connection; refusals are explained and can be retried; a key is asked for when
the server wants one and kept in sessionStorage only; gauges follow /stats; every control has a name and can be reached by
keyboard; text has enough contrast, light and dark, and fits 360 px; no request goes to another host.
Exit code 77 (a skip for CTest) without Chromium.
"""
import http.server
import json
import pathlib
import select
import sys
import tempfile
import threading
import time

from report_browser_test import CHROMIUM, REPEATED_IDS, SIDEWAYS, Browser, expect, failures

WIDE, PHONE = 1280, 360
DEADLINE_S = 20  # for events that should be immediate
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&lt;b&gt; </script>"


class Server(http.server.ThreadingHTTPServer):
    """The endpoints that the page uses. `script` is a list of functions that answer the next chats."""
    daemon_threads = True

    def __init__(self, page):
        super().__init__(("127.0.0.1", 0), Handler)
        self.page = page
        self.key = None
        self.stats = {"model": "tiny <i>model</i>", "uptime_s": 7400.2, "running": 3, "waiting": 1, "pages": 400,
                      "pages_in_use": 100, "prompt_tokens": 900, "generated_tokens": 5000, "prefix_queried_tokens": 800,
                      "prefix_hit_tokens": 600, "drafted_tokens": 0, "accepted_tokens": 0, "preemptions": 0,
                      "ttft_p50_s": 0.0421, "finished": {"stop": 1, "length": 0, "abort": 0, "error": 0}}
        self.stats_status = 200
        self.generated_per_poll = 0
        self.script, self.chats, self.paths = [], [], []
        self.release = threading.Event()  # a slow answer waits for this
        self.closed = threading.Event()   # set when a waiting answer's client disconnected

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(data)

    def refused(self):
        if not self.server.key or self.headers.get("Authorization") == "Bearer " + self.server.key:
            return False
        self.answer(401, {"error": {"message": "no such key", "type": "AuthenticationError", "code": 401}})
        return True

    def do_GET(self):
        self.server.paths.append(self.path)
        if self.path == "/":
            self.answer(200, self.server.page, "text/html; charset=utf-8")
        elif self.path == "/stats":
            if self.refused():
                return
            self.server.stats["generated_tokens"] += self.server.generated_per_poll
            self.answer(self.server.stats_status, self.server.stats)
        else:
            self.answer(404, {})

    def do_POST(self):
        self.server.paths.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self.answer(404, {})
        elif not self.refused():
            self.server.chats.append(body)
            self.server.script.pop(0)(self)

    # Building blocks of scripts.

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def raw(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, value):
        self.raw(b"data: " + json.dumps(value).encode() + b"\n\n")

    def delta(self, finish=None, **delta):
        self.event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def end(self, completion_tokens=None, cached=0):
        if completion_tokens is not None:
            self.event({"choices": [], "usage": {"prompt_tokens": 60, "completion_tokens": completion_tokens,
                                                 "prompt_tokens_details": {"cached_tokens": cached}}})
        self.raw(b"data: [DONE]\n\n")
        self.raw(b"")  # the last chunk

    def wait(self):
        """Waits until the test continues or the client is gone."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.server.release.is_set() and time.monotonic() < deadline:
            if select.select([self.connection], [], [], 0.02)[0] and not self.connection.recv(1):
                self.server.closed.set()
                return False
        self.server.release.clear()
        return True


def says(*pieces, thought="", tokens=None, cached=0, finish="stop"):
    def script(handler):
        handler.begin()
        handler.delta(role="assistant", content="")
        if thought:
            handler.delta(reasoning_content=thought)
        for piece in pieces:
            handler.delta(content=piece)
        handler.delta(finish=finish)
        handler.end(tokens, cached)
    return script


def refuses(status, message, **headers):
    return lambda handler: handler.answer(status, {"error": {"message": message, "code": status}},
                                          headers=[(k.replace("_", "-"), v) for k, v in headers.items()])


class Reader(Browser):
    """A user of the page: reads, clicks, types."""

    def visit(self, url, width, dark=False, still=False):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=760, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", media="screen", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}])
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._receive())

    def until(self, expression, what):
        """The expression's value once it is truthy; else a failure."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.02)
        expect(False, f"{what}: {expression} did not come true; the log says: {self.evaluate('log.innerText')!r}")
        return None

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent")

    def key(self, key, **more):
        codes = {"Enter": 13, "Tab": 9, "Escape": 27}
        key_event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], **more}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **key_event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key_event)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        x, y = self.evaluate(f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                             " return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def send(self, text):
        self.evaluate("document.querySelector('#message').focus()")
        self.type(text)
        self.key("Enter")

    def idle(self, what):
        self.until("!document.querySelector('#send').hidden", f"{what}: the answer ends")


# Text with a contrast to its background under 4.5, and edges of controls under 3 (WCAG 2.2, 1.4.3 and 1.4.11).
FAINT = """(() => {
  const numbers = c => c.match(/[0-9.]+/g).map(Number);
  const luminance = c => numbers(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor; if ((numbers(c)[3] ?? 1) === 1) return c; } return 'rgb(255, 255, 255)'; };
  const contrast = (a, b) => { const x = luminance(a), y = luminance(b);
    return (Math.max(x, y) + .05) / (Math.min(x, y) + .05); };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (['SCRIPT', 'NOSCRIPT', 'OPTION'].includes(e.tagName) || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    if ([...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) {
      const is = contrast(style.color, behind(e));
      if (is < 4.5) bad.push(e.tagName + ' ' + is.toFixed(2) + ' ' + e.textContent.trim().slice(0, 40));
    }
    if (['INPUT', 'TEXTAREA', 'SELECT'].includes(e.tagName) && contrast(style.borderColor, behind(e.parentElement)) < 3)
      bad.push(e.tagName + '#' + e.id + ' has a faint edge');
  }
  return bad;
})()"""

# Content that is cut off by a box that does not scroll.
CUT = """[...document.querySelectorAll('header *, dl *, form *')].filter(e => e.checkVisibility() && e.clientWidth &&
  !['TEXTAREA', 'INPUT', 'SELECT', 'svg'].includes(e.tagName) && !e.classList.contains('unseen') && e.id !== 'model' &&
  (e.scrollWidth > e.clientWidth + 1)).map(e => e.tagName + '#' + e.id + ' ' + e.textContent.trim().slice(0, 30))"""


def expect_equal(value, wanted, what):
    expect(value == wanted, f"{what}: {value!r} instead of {wanted!r}")


def expect_quiet(browser, server, where):
    """No console message except for errors that the test scripted, and no request to another host."""
    browser.evaluate("0")  # processes pending events
    for event in browser.events:
        params = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            expect(params["entry"]["source"] == "network" and params["entry"].get("url", "").startswith(server.url),
                   f"{where}: {params}")
        if event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            expect(False, f"{where}: console message {params}")
        if event.get("method") == "Network.requestWillBeSent":
            url = params["request"]["url"]
            expect(url.startswith((server.url, "data:")), f"{where}: asks for {url}")


def gauges_follow_stats(browser, server):
    browser.visit(server.url, WIDE)
    browser.until("document.querySelector('#state').textContent === 'Ready'", "the page finds its server")
    for gauge, value in (("running", "3"), ("waiting", "1"), ("kv", "25 %"), ("prefix", "75 %")):
        expect_equal(browser.text(f"#{gauge} .value"), value, f"gauge {gauge}")
    expect_equal(browser.text("#model"), "tiny <i>model</i>", "the model's name")
    expect_equal(browser.text("#uptime"), "up 2 h", "the uptime")
    expect_equal(browser.text("#ttft .note"), "server median 42 ms", "the server's median")
    browser.until("document.querySelector('#tokens .value').textContent === '0'", "an idle server writes no tokens")
    server.generated_per_poll = 250
    server.stats.update(running=12, waiting=1234, pages_in_use=399)
    browser.until("document.querySelector('#tokens .value').textContent > '0'", "tokens/s rises")
    for gauge, value in (("running", "12"), ("waiting", "1,234"), ("kv", "100 %")):
        browser.until(f"document.querySelector('#{gauge} .value').textContent === '{value}'", f"gauge {gauge} follows")
    line = browser.until("document.querySelector('#kv polyline').getAttribute('points')", "a line")
    expect(line.split()[-1] == "59,2.04" and line.split()[-2].endswith((",2.04", ",14.75")), f"the line of kv: {line}")

    server.stats.update(generated_tokens=3, prefix_queried_tokens=0, pages=0)  # a restarted server
    browser.until("document.querySelector('#tokens .note').textContent.match(/^\\d{1,3} so far/)", "a restart")
    expect(not browser.text("#tokens .value").startswith("-"), "a negative rate")
    server.stats_status = 503
    browser.until("document.querySelector('#state').textContent === 'Starting or stopping'", "503 of /stats")
    server.stats_status = 200
    browser.until("document.querySelector('#state').textContent === 'Ready'", "the server is back")
    server.generated_per_poll = 0
    server.stats.update(generated_tokens=5000, prefix_queried_tokens=800, pages=400, running=1, waiting=0, pages_in_use=90)
    expect_quiet(browser, server, "gauges")


def chat_streams(browser, server):
    def slowly(handler):
        handler.begin()
        handler.delta(role="assistant", content="")
        handler.delta(reasoning_content="They greet me.")
        handler.raw(b": ping\n\n")
        handler.delta(content="Hel")
        if handler.wait():
            data = 'data: {"choices":[{"delta":{"content":"lo é😀"}}]}\n\n'.encode()
            for at in range(0, len(data), 3):  # cuts characters and events anywhere
                handler.raw(data[at:at + 3])
            handler.delta(finish="length")
            handler.end(41, 30)

    server.script = [slowly, says("Fine.")]
    browser.visit(server.url, WIDE)
    browser.until("document.querySelector('#model').textContent", "the model's name")
    expect_equal(browser.evaluate("document.activeElement.id"), "message", "the focus after loading")
    browser.type("Good")
    browser.key("Enter", modifiers=8)  # Shift
    browser.type("morning <b>you</b>")
    expect_equal(server.chats, [], "Shift+Enter sends nothing")
    browser.key("Enter")
    browser.until("document.querySelector('.answer .text').textContent === 'Hel'", "the first piece is shown at once")
    expect_equal(browser.text(".user p"), "Good\nmorning <b>you</b>", "the message sent")
    expect_equal(browser.text(".reasoning p"), "They greet me.", "the reasoning")
    expect(browser.evaluate("!document.querySelector('.reasoning').open"), "the reasoning is not folded")
    expect_equal(browser.evaluate("log.getAttribute('aria-busy')"), "true", "busy while it streams")
    browser.type("next")
    browser.key("Enter")
    expect_equal(len(server.chats), 1, "Enter while an answer is written sends nothing")
    expect_equal(browser.evaluate("message.value"), "next", "and what was typed stays")
    server.release.set()
    browser.idle("a streamed answer")
    expect_equal(browser.text(".answer .text"), "Hello é😀", "the whole answer")
    facts = browser.text(".facts") or ""
    expect(facts.startswith("41 tokens · ") and "first after " in facts and "30 of 60 prompt tokens from the cache" in facts
           and facts.endswith("cut at the most tokens"), f"the facts: {facts}")
    expect(browser.text("#ttft .value") != "–", "the gauge of the first token stays empty")
    expect_equal(browser.evaluate("log.getAttribute('aria-busy')"), "false", "busy afterwards")
    body = server.chats[0]
    expect_equal(body, {"model": server.stats["model"], "stream": True, "stream_options": {"include_usage": True},
                        "messages": [{"role": "user", "content": "Good\nmorning <b>you</b>"}]}, "the request")
    browser.key("Enter")  # "next" is still there
    browser.until("document.querySelectorAll('.facts').length === 2", "a second answer")
    expect_equal(server.chats[-1]["messages"],
                 body["messages"] + [{"role": "assistant", "content": "Hello é😀"}, {"role": "user", "content": "next"}],
                 "the whole conversation is sent, without its reasoning")
    browser.click("#anew")
    expect_equal(browser.evaluate("log.querySelectorAll('.turn').length"), 0, "a new chat is empty")
    server.script = [says("ok")]
    browser.send("first again")
    browser.until("document.querySelector('.facts') !== null", "an answer in the new chat")
    expect_equal(server.chats[-1]["messages"], [{"role": "user", "content": "first again"}], "a new chat forgets")
    expect_quiet(browser, server, "chat")


def markup_is_text(browser, server):
    fenced = f"See:\n```html\n{HOSTILE}\n```\nand {HOSTILE}"
    server.script = [says(fenced[:30], fenced[30:], thought=HOSTILE), refuses(400, HOSTILE)]
    browser.visit(server.url, WIDE)
    browser.send(HOSTILE)
    browser.idle("a hostile answer")
    expect_equal(browser.text(".user p"), HOSTILE, "the user's markup")
    expect_equal(browser.text(".reasoning p"), HOSTILE, "the reasoning's markup")
    expect_equal(browser.text(".answer pre"), HOSTILE, "markup in a fence")
    expect_equal(browser.evaluate("[...document.querySelectorAll('.answer .text p')].map(p => p.textContent)"),
                 ["See:", f"and {HOSTILE}"], "markup around it")
    browser.send("again")
    browser.idle("a hostile refusal")
    expect(HOSTILE in (browser.text(".problem p") or ""), "the error's markup is not shown as text")
    expect_equal(browser.evaluate("document.querySelectorAll('#log img, #log script, #log i, #log b').length"), 0,
                 "elements made of strings")
    expect_equal(browser.evaluate("document.title"), "Fathom", "the title")
    expect_quiet(browser, server, "hostile texts")

    # An injected script would not run: the content security policy allows only the page's own.
    browser.evaluate("document.body.append(Object.assign(document.createElement('script'),"
                     "{textContent: 'document.title = \"owned\"'}))")
    expect_equal(browser.evaluate("document.title"), "Fathom", "the title after a script was put in")
    browser.events.clear()


def stop_ends_the_connection(browser, server):
    for stop in (lambda: browser.click("#stop"), lambda: browser.key("Escape")):
        def endless(handler):
            handler.begin()
            handler.delta(content="and so on")
            handler.wait()

        server.closed.clear()
        server.script = [endless, says("more")]
        browser.visit(server.url, WIDE)
        browser.send("count")
        browser.until("document.querySelector('.answer .text').textContent === 'and so on'", "an endless answer begins")
        stop()
        expect(server.closed.wait(DEADLINE_S), "the server does not see that the reader stopped")
        browser.idle("stopping")
        expect((browser.text(".facts") or "").endswith("stopped"), "a stopped answer does not say so")
        expect_equal(browser.evaluate("document.activeElement.id"), "message", "the focus after stopping")
        expect_equal(browser.evaluate("document.querySelectorAll('.problem').length"), 0, "stopping is no problem")
        browser.send("go on")
        browser.until("document.querySelectorAll('.facts').length === 2", "after stopping")
        expect_equal(server.chats[-1]["messages"][1:2], [{"role": "assistant", "content": "and so on"}], "half an answer")

    # A new chat during an answer: the partial answer stays in the old chat.
    server.closed.clear()
    server.script = [endless, says("yes")]
    browser.visit(server.url, WIDE)
    browser.send("count")
    browser.until("document.querySelector('.answer .text').textContent === 'and so on'", "an endless answer begins")
    browser.click("#anew")
    expect(server.closed.wait(DEADLINE_S), "a new chat does not end the old one's answer")
    browser.idle("a new chat")
    browser.send("new")
    browser.until("document.querySelector('.facts') !== null", "an answer in the new chat")
    expect_equal(server.chats[-1]["messages"], [{"role": "user", "content": "new"}], "the new chat's request")
    expect_quiet(browser, server, "stopping")


def refusals_are_told(browser, server):
    def cut(handler):
        handler.begin()
        handler.delta(content="half")
        handler.raw(b"")  # ends well for HTTP, but without [DONE]
        handler.close_connection = True

    def fails(handler):
        handler.begin()
        handler.delta(content="half")
        handler.event({"error": {"message": "the engine stopped"}})
        handler.end()

    def nonsense(handler):
        handler.begin()
        handler.raw(b"data: {nonsense\n\n")
        handler.end()

    for script, words in ((refuses(429, "queue is full", Retry_After="7"), ["full", "Try again in 7 s", "queue is full"]),
                          (refuses(503, "draining"), ["takes no requests now", "draining"]),
                          (refuses(500, "oops"), ["server failed", "oops"]),
                          (lambda h: h.answer(502, b"<html>bad gateway</html>", "text/html"), ["server failed", "HTTP 502"]),
                          (refuses(400, "messages: too long"), ["did not accept", "messages: too long"]),
                          (nonsense, ["no answer"])):
        server.script = [script, says("At last.")]
        browser.visit(server.url, WIDE)
        browser.send("please")
        told = browser.until("document.querySelector('.problem p')?.textContent", "a refusal is told") or ""
        for word in words:
            expect(word in told, f"{told!r} does not say {word!r}")
        browser.idle("a refusal")
        browser.click(".problem button")
        browser.until("document.querySelector('.answer .text')?.textContent === 'At last.'", "trying again")
        expect_equal(browser.evaluate("document.querySelectorAll('.problem, .user').length"), 1, "one question, no problem")
        expect_equal(server.chats[-1]["messages"], [{"role": "user", "content": "please"}], "trying again asks the same")
    for script, words in ((cut, "ended before"), (fails, "the engine stopped")):
        server.script = [script]
        browser.visit(server.url, WIDE)
        browser.send("please")
        told = browser.until("document.querySelector('.problem p')?.textContent", "a failure is told") or ""
        expect(words in told, f"{told!r} does not say {words!r}")
        expect_equal(browser.text(".answer .text"), "half", "what came before the failure")
    expect_quiet(browser, server, "refusals")


def key_is_asked_for(browser, server):
    browser.visit(server.url, WIDE)
    browser.until("document.querySelector('#state').textContent === 'Ready'", "ready without a key")
    expect(browser.evaluate("document.querySelector('#key-form').hidden"), "a key is asked for before one is needed")
    server.key = "sesame"
    server.script = [says("Open.")]
    browser.send("let me in")
    browser.until("!document.querySelector('#key-form').hidden", "a key is asked for")
    browser.until("document.activeElement.id === 'key'", "the focus is in it")
    expect_equal(browser.evaluate("sessionStorage.length + localStorage.length"), 0, "stored before a key was given")
    chats = len(server.chats)
    browser.type("wrong")
    browser.key("Enter")
    browser.until("document.querySelector('#key-form').hidden === false && sessionStorage.length === 1 && "
                  "document.querySelector('#key').value === ''", "a wrong key is asked for again")
    expect_equal(len(server.chats), chats, "a wrong key opens nothing")
    browser.until("!document.querySelector('#send').hidden", "the refusal of the wrong key")
    browser.evaluate("document.querySelector('#key').focus()")
    browser.type(" sesame ")
    browser.key("Enter")
    browser.until("document.querySelector('.answer .text')?.textContent === 'Open.'", "the right key")
    browser.until("document.querySelector('#state').textContent === 'Ready'", "gauges with a key")
    expect(browser.evaluate("document.querySelector('#key-form').hidden"), "the key's form stays")
    expect_equal(browser.evaluate("[sessionStorage.length, localStorage.length, document.cookie]"), [1, 0, ""],
                 "where the key is kept")
    browser.evaluate("sessionStorage.clear()")
    server.key = None
    expect_quiet(browser, server, "the key")


def settings_are_sent(browser, server):
    browser.visit(server.url, WIDE)
    browser.click("#settings summary")
    browser.evaluate("document.querySelector('#temperature').focus()")
    browser.type("9")
    chats = len(server.chats)
    browser.send("hi")
    expect_equal([len(server.chats), browser.evaluate("message.value")], [chats, "hi"], "a temperature of 9 is not sent")
    browser.evaluate("temperature.value = '0.25', effort.value = 'high', document.querySelector('#max-tokens').value = '77'")
    server.script = [says("ok")]
    browser.send("")
    browser.until("document.querySelector('.facts') !== null", "an answer with settings")
    sent = {k: v for k, v in server.chats[-1].items() if k not in ("model", "messages", "stream", "stream_options")}
    expect_equal(sent, {"temperature": 0.25, "max_completion_tokens": 77, "reasoning_effort": "high"}, "the settings")
    expect_quiet(browser, server, "settings")


def keyboard_and_names(browser, server):
    browser.visit(server.url, WIDE, still=True)
    server.script = [lambda handler: (handler.begin(), handler.delta(content="x"), handler.wait())]
    browser.send("go")
    browser.until("document.querySelector('.answer .text').textContent === 'x'", "an answer")
    expect_equal(browser.evaluate("getComputedStyle(document.querySelector('.writing .text p'), '::after').animationName"),
                 "none", "motion where none is wanted")
    browser.key("Escape")
    browser.idle("stopped")
    browser.evaluate("document.querySelector('#settings').open = true; document.querySelector('#key-form').hidden = false;"
                     "log.focus()")
    reached = [["log", 2]]
    for _ in range(20):
        browser.key("Tab")
        at = browser.evaluate("[document.activeElement.id || document.activeElement.tagName,"
                              " parseFloat(getComputedStyle(document.activeElement).outlineWidth)]")
        if at[0] in ("BODY", *(r[0] for r in reached)):
            break
        reached.append(at)
    expect_equal([r[0] for r in reached], ["log", "key", "BUTTON", "message", "send", "SUMMARY", "temperature", "max-tokens",
                                           "effort", "anew"], "the way of Tab")
    for name, outline in reached:
        expect(outline >= 2, f"the focus on {name} cannot be seen: its outline has {outline} px")
    browser.call("Accessibility.enable")
    nameless = []
    for node in browser.call("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        if not node.get("ignored") and role in ("button", "textbox", "spinbutton", "combobox", "log", "region", "MenuListPopup"):
            if role != "MenuListPopup" and not node.get("name", {}).get("value"):
                nameless.append(role)
    expect_equal(nameless, [], "controls without a name")
    browser.call("Accessibility.disable")
    expect_quiet(browser, server, "keyboard")


def looks_right(browser, server, pictures):
    code = "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a  # " + "a long line that goes on and on " * 4
    for width in (WIDE, PHONE):
        for dark in (False, True):
            where = f"{width} px, {'dark' if dark else 'light'}"
            server.generated_per_poll = 312
            server.script = [says("The greatest common divisor, by Euclid:\n\n```python\n" + code + "\n```\n\n"
                                  "Each step replaces the larger number by a remainder, so the numbers shrink by half every "
                                  "two steps. " + "A-word-without-an-end" * 12, thought="They want Euclid.\nShort code.",
                                  tokens=187, cached=48),
                             refuses(429, "512 requests are waiting", Retry_After="2")]
            browser.visit(server.url, width, dark)
            for word in ("", "empty", "chat", "open"):
                if word == "chat":
                    browser.send("Write a function for the greatest common divisor of two numbers, and say why it is fast.")
                    browser.idle(where)
                    browser.send("Thanks! And the least common multiple?")
                    browser.idle(where)
                    for i in range(6):  # gauges with data
                        server.stats.update(running=i % 4 + 1, waiting=i * 2 % 5, pages_in_use=100 + 40 * i)
                        browser.evaluate("poll()")
                        browser.until(f"document.querySelector('#kv .value').textContent === '{25 + 10 * i} %'", where)
                if word == "open":
                    browser.click(".reasoning summary" if width == WIDE else "#settings summary")
                    browser.evaluate("document.querySelector('#settings').open = true;"
                                     "document.querySelector('#key-form').hidden = false; log.scrollTop = 0")
                for name, script in (("faint", FAINT), ("cut off", CUT), ("repeated id", REPEATED_IDS)):
                    expect_equal(browser.evaluate(script), [], f"{where}, {word}: {name}")
                expect_equal(browser.evaluate(SIDEWAYS), 0, f"{where}, {word}: sideways scrolling")
                expect(browser.evaluate("document.querySelector('#send').getBoundingClientRect().bottom <= innerHeight"),
                       f"{where}, {word}: the button Send is out of sight")
                if pictures and word:
                    browser.screenshot(pictures / f"{width}_{'dark' if dark else 'light'}_{word}.png", width=width, height=760)
            expect_quiet(browser, server, where)


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__)
        return 5
    if not CHROMIUM:
        print("SKIPPED: needs_library, chromium: install the package chromium to run this test")
        return 77
    page = pathlib.Path(sys.argv[1]).read_bytes()
    expect(len(page) < 40_000, f"the page has {len(page)} bytes")
    started = time.monotonic()
    server = Server(page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Reader(profile)
        try:
            gauges_follow_stats(browser, server)
            chat_streams(browser, server)
            markup_is_text(browser, server)
            stop_ends_the_connection(browser, server)
            refusals_are_told(browser, server)
            key_is_asked_for(browser, server)
            settings_are_sent(browser, server)
            keyboard_and_names(browser, server)
            looks_right(browser, server, pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None)
            expect(set(server.paths) == {"/", "/stats", "/v1/chat/completions"}, f"other paths: {set(server.paths)}")
        finally:
            browser.close()
            server.shutdown()
    print(f"{'FAILED' if failures else 'ok'}: {len(failures)} failures in {time.monotonic() - started:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
