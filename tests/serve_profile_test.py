"""CPU profiles of a running `fathom serve`: GET /debug/pprof/profile, and --profile-dir.

usage: serve_profile_test.py FATHOM
"""

import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest

from serve_process import COMPLETIONS, Server, until

FATHOM = os.path.abspath(sys.argv.pop(1))
KEY = {"Authorization": "Bearer admin"}
PROFILE = "/debug/pprof/profile"
BUSY = {"prompt": [5, 6, 7], "max_tokens": 60000, "temperature": 0, "ignore_eos": True}
# One thread, so that the stacks of all samples of a step have the engine's functions.
FLAGS = ("--threads", 1, "--admin-api-key", "admin", "--max-model-len", 65536, "--kv-tokens", 131072)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """{number: values} of a message in Protocol Buffers' wire format: integers, and bytes."""
    found, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            assert tag & 7 == 2, tag
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "it ends within a field"
        found.setdefault(tag >> 3, []).append(value)
    return found


def integers(data):
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


class Profile:
    """pprof's profile.proto, as far as this test reads it."""

    def __init__(self, data):
        profile = fields(data)
        strings = [text.decode() for text in profile[6]]
        names = {one[1][0]: strings[one[2][0]] for one in map(fields, profile.get(5, []))}
        functions = {one[1][0]: names[fields(one[4][0])[1][0]] for one in map(fields, profile.get(4, []))}
        self.types = [(strings[one[1][0]], strings[one[2][0]]) for one in map(fields, profile[1])]
        self.samples = []  # (functions from the innermost, [count, ns], thread)
        for sample in map(fields, profile.get(2, [])):
            label = fields(sample[3][0])
            assert strings[label[1][0]] == "thread"
            self.samples.append(([functions[at] for at in integers(sample[1][0])], integers(sample[2][0]),
                                 strings[label[2][0]]))
        self.duration_s = profile[10][0] * 1e-9

    def seconds(self, function=""):
        return sum(values[1] for stack, values, _ in self.samples if any(function in name for name in stack)) * 1e-9


class Profiles(unittest.TestCase):
    def busy(self, server):
        """Keeps the engine busy until the stream is closed."""
        events = server.stream(COMPLETIONS, **BUSY)
        next(events)

        def read():
            try:
                for _ in events:
                    pass
            except Exception:  # the server ends
                pass
        reader = threading.Thread(target=read, daemon=True)
        reader.start()

    def test_a_profile_shows_the_forward_pass_while_answers_go_on(self):
        with Server(FATHOM, *FLAGS) as server:
            self.busy(server)
            reply = server.get(f"{PROFILE}?seconds=2", **KEY)
            self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "application/octet-stream"))
            profile = Profile(reply.body)
            self.assertEqual(profile.types, [("samples", "count"), ("cpu", "nanoseconds")])
            self.assertAlmostEqual(profile.duration_s, 2, delta=1)
            self.assertGreater(profile.seconds(), 0.2)
            self.assertGreater(profile.seconds("forward"), 0.3 * profile.seconds())
            self.assertTrue(any(thread.startswith("fathom") for _, _, thread in profile.samples))
            folded = server.get(f"{PROFILE}?format=folded&seconds=1", **KEY)
            self.assertEqual(folded.headers["Content-Type"], "text/plain; charset=utf-8")
            lines = [line.rsplit(" ", 1) for line in folded.body.decode().splitlines()]
            self.assertGreater(sum(int(count) for _, count in lines), 10)
            self.assertTrue(any(";" in stack and "forward" in stack for stack, _ in lines))

    def test_what_is_wrong_is_named_and_strangers_are_refused(self):
        with Server(FATHOM, *FLAGS) as server:
            for query, said in (("seconds=0", "seconds is '0', but must be above 0 and at most 600"), ("seconds=601", "601"),
                                ("seconds=x", "'x'"), ("seconds=nan", "'nan'"), ("format=svg", "must be pprof or folded")):
                reply = server.get(f"{PROFILE}?{query}", **KEY)
                self.assertEqual(reply.status, 400, query)
                self.assertIn(said, reply.error()["message"])
            self.assertEqual(server.get(f"{PROFILE}?seconds=1").status, 401)
            self.assertEqual(server.post(PROFILE, {}, KEY).status, 405)
            # Four at once, and no fifth.
            statuses = []
            threads = [threading.Thread(target=lambda: statuses.append(server.get(f"{PROFILE}?seconds=2", **KEY).status))
                       for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(statuses), [200] * 4 + [503] * 2)
            self.assertEqual(server.get(f"{PROFILE}?seconds=0.1", **KEY).status, 200)
            # Clients that leave give their places back.
            for _ in range(5):
                server.socket(f"GET {PROFILE}?seconds=600 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n".encode()).close()
            until(lambda: server.get(f"{PROFILE}?seconds=0.1", **KEY).status == 200, "there is a place again")
        with Server(FATHOM) as server:
            self.assertIn("--admin-api-key", server.get(PROFILE).error()["message"])

    def test_profiles_are_kept_in_a_folder_and_a_stop_waits_for_none(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "profiles"
            with Server(FATHOM, *FLAGS, "--profile-dir", kept, "--profile-window", 1, "--profile-keep", 2,
                        "--drain-timeout", 3) as server:
                self.busy(server)
                first = until(lambda: sorted(kept.glob("cpu-*Z.pb")), "a profile is there")[0]
                until(lambda: not first.exists(), "the third replaces the first")
                answered = []
                waiting = threading.Thread(target=lambda: answered.append(server.get(f"{PROFILE}?seconds=500", **KEY)))
                waiting.start()
                time.sleep(1)
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(60), 0)
                waiting.join(60)
                self.assertEqual(answered[0].status, 200)
                self.assertLess(Profile(answered[0].body).duration_s, 60)
            files = sorted(kept.iterdir())
            self.assertEqual(len(files), 2, files)
            self.assertGreater(Profile(files[0].read_bytes()).seconds("forward"), 0.1)
        with self.assertRaisesRegex(AssertionError, "--profile-dir /proc/no/.*name a folder you may write to"):
            Server(FATHOM, "--profile-dir", "/proc/no")


if __name__ == "__main__":
    unittest.main(verbosity=2)
