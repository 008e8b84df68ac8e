#!/usr/bin/env python3
"""`fathom bench serve` and a server behind TLS: whose certificate it trusts, and what it says where it does not.

usage: bench_tls_test.py FATHOM
"""
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

FATHOM = os.path.abspath(sys.argv.pop(1))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def reply(self, content_type, body):
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply("application/json", b'{"data": [{"id": "tiny"}]}')

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = asked["max_tokens"]
        events = [{"choices": [{"index": 0, "text": "x", "finish_reason": "length" if i + 1 == tokens else None}]}
                  for i in range(tokens)]
        events.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}})
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.server.answered += 1
        self.reply("text/event-stream", text.encode())

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    answered = 0

    def handle_error(self, *_):  # a refused handshake is what some tests ask for
        pass


class BenchTls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.certificate = os.path.join(cls.folder.name, "certificate.pem")
        key = os.path.join(cls.folder.name, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key,
                        "-out", cls.certificate, "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cls.certificate, key)
        cls.server = Server(("127.0.0.1", 0), Handler)
        cls.server.socket = context.wrap_socket(cls.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()
        cls.folder.cleanup()

    def bench(self, host, *flags, **env):
        self.server.answered = 0
        return subprocess.run(
            [FATHOM, "bench", "serve", "--base-url", f"https://{host}:{self.server.server_port}", "--num-prompts", "7",
             "--random-input-len", "3", "--random-output-len", "2", *flags],
            capture_output=True, text=True, timeout=120, cwd=self.folder.name,
            env={k: v for k, v in os.environ.items() if not k.startswith("SSL_CERT")} | env)

    def assert_answered(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(self.server.answered, 8)  # a test request comes first
        self.assertRegex(result.stdout, r"Successful requests: +7 *\n")

    def assert_refused(self, result, why):
        self.assertEqual(result.returncode, 5, result.stdout + result.stderr)
        self.assertEqual(self.server.answered, 0)
        self.assertIn("certificate", result.stderr)
        self.assertIn(why, result.stderr)

    def test_a_certificate_that_nobody_signed_is_refused(self):
        self.assert_refused(self.bench("localhost"), "self-signed")

    def test_a_trusted_certificate_is_taken(self):
        self.assert_answered(self.bench("localhost", SSL_CERT_FILE=self.certificate))

    def test_a_certificate_of_another_host_is_refused(self):
        self.assert_refused(self.bench("127.0.0.1", SSL_CERT_FILE=self.certificate), "127.0.0.1")

    def test_any_certificate_is_taken_where_that_is_asked_for(self):
        self.assert_answered(self.bench("127.0.0.1", "--insecure"))

    def test_a_server_without_tls_is_named(self):
        plain = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=plain.serve_forever, daemon=True).start()
        try:
            result = subprocess.run([FATHOM, "bench", "serve", "--base-url", f"https://127.0.0.1:{plain.server_port}"],
                                    capture_output=True, text=True, timeout=120, cwd=self.folder.name)
        finally:
            plain.shutdown()
            plain.server_close()
        self.assertEqual(result.returncode, 5, result.stdout + result.stderr)
        self.assertIn("TLS", result.stderr)


if __name__ == "__main__":
    unittest.main()
