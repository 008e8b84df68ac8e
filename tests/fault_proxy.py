"""A TCP proxy between two processes of a test, which holds, slows down or resets what passes: partitions, also
one-way, without privileges."""

import contextlib
import socket
import struct
import threading
import time


class FaultProxy:
    """Listens on `port` of 127.0.0.1 and passes everything on to `to_port`. Its faults may change at any time."""

    def __init__(self, to_port):
        self.to_port = to_port
        self.changed = threading.Condition()
        self.held = {"request": None, "answer": None}  # pieces that begin so are held; None: nothing is
        self.answer_bytes_per_s = None  # of each connection
        self.pairs = {}  # (client, server): whether it was reset
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    # Faults.

    def hold(self, *directions, prefix=b""):
        """Keeps the pieces of "request" or "answer" (all, or those that begin with `prefix`) until heal()."""
        with self.changed:
            for direction in directions:
                self.held[direction] = prefix

    def heal(self):
        """Nothing is held or slow any more. What was held goes on its way."""
        with self.changed:
            self.held = dict.fromkeys(self.held)
            self.answer_bytes_per_s = None
            self.changed.notify_all()

    def reset(self):
        """Ends all connections by RST, as a host that has lost them does."""
        with self.changed:
            for pair, broken in self.pairs.items():
                broken.set()
                for end in pair:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RD)  # wakes the thread that reads, which closes both ends

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.listener.close()
        self.heal()
        self.reset()

    # The way of the bytes.

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.changed:
                broken = self.pairs[client, server] = threading.Event()
            pumps = [threading.Thread(target=self._pump, args=(*way, broken), daemon=True)
                     for way in ((client, server, "request"), (server, client, "answer"))]
            threading.Thread(target=self._run, args=((client, server), pumps), daemon=True).start()

    def _run(self, pair, pumps):
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        with self.changed:
            del self.pairs[pair]
            for end in pair:
                end.close()

    def _is_held(self, direction, piece):
        prefix = self.held[direction]
        return prefix is not None and piece.startswith(prefix)

    def _pump(self, source, sink, direction, broken):
        try:
            while piece := source.recv(512 if self.answer_bytes_per_s else 1 << 16):
                with self.changed:
                    self.changed.wait_for(lambda: not self._is_held(direction, piece))
                if direction == "answer" and (rate := self.answer_bytes_per_s):
                    time.sleep(len(piece) / rate)
                sink.sendall(piece)
        except OSError:
            pass
        if not broken.is_set():
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
