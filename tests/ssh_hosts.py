"""Hosts that ssh reaches, for tests: an sshd with keys and a configuration of its own in a temporary folder.

Aliases are several names of this machine. Namespaces are hosts of their own, with addresses and a link that can be
slowed or cut; they need root.
"""

import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def why_no_sshd():
    """Why no sshd can run here; empty where it can."""
    missing = [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)] + ([] if SSHD else ["sshd"])
    return f"needs_library: {', '.join(missing)} (packages-test.txt)" if missing else ""


def why_no_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return "needs_permission: root and iproute2, for network namespaces"
    tried = subprocess.run(["ip", "netns", "add", "fathom-try"], capture_output=True, text=True)
    if tried.returncode == 0:
        tried = subprocess.run(["ip", "netns", "exec", "fathom-try", "true"], capture_output=True, text=True)
        subprocess.run(["ip", "netns", "del", "fathom-try"])
    return f"needs_permission: network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class SshHosts:
    """`ssh` is the command that reaches the hosts, which never asks and knows their key."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.path.chmod(0o700)
        self.servers = []
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path / key], check=True)
        self.config = self.path / "ssh_config"
        self.config.write_text("")
        (self.path / "known").write_text(f"fathom-test {(self.path / 'host.pub').read_text()}")
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own folder, which a service would have made
        self.ssh = f"ssh -F {self.config}"

    def serve(self, address, port, enter=()):
        """Starts an sshd; `enter` is a command that enters a namespace."""
        config = self.path / f"sshd_config_{address}_{port}"
        config.write_text(f"Port {port}\nListenAddress {address}\nHostKey {self.path}/host\nPidFile none\n"
                          f"AuthorizedKeysFile {self.path}/user.pub\nStrictModes no\nUsePAM no\n"
                          "PasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 100\n")
        log = open(self.path / "sshd.log", "ab")
        self.servers.append(subprocess.Popen([*enter, SSHD, "-D", "-e", "-f", config], stdout=log, stderr=log))
        log.close()

    def name(self, alias, address, port):
        with open(self.config, "a") as config:
            config.write(f"Host {alias}\n  HostName {address}\n  Port {port}\n  User {getpass.getuser()}\n"
                         f"  HostKeyAlias fathom-test\n  IdentityFile {self.path}/user\n  IdentitiesOnly yes\n"
                         f"  UserKnownHostsFile {self.path}/known\n  GlobalKnownHostsFile /dev/null\n")

    def answers(self, alias):
        return subprocess.run([*self.ssh.split(), "-o", "BatchMode=yes", alias, "true"], capture_output=True).returncode == 0

    def close(self):
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
        for server in self.servers:
            server.wait()
        self.folder.cleanup()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def aliases(*names):
    """Names of this machine, all behind one sshd on 127.0.0.1."""
    hosts, port = SshHosts(), free_port()
    hosts.serve("127.0.0.1", port)
    for name in names:
        hosts.name(name, "127.0.0.1", port)
    if not until(lambda: hosts.answers(names[0])):
        said = (hosts.path / "sshd.log").read_text()
        hosts.close()
        raise RuntimeError(f"sshd does not answer: {said}")
    return hosts


class Namespaces:
    """Hosts 10.98.N.1, .2, ... in namespaces of a bridge whose own address, .254, is this machine's; each with another N."""

    made = 0

    def __init__(self, count):
        Namespaces.made += 1
        self.prefix = f"f{os.getpid() % 1000000}{'abcdefgh'[Namespaces.made % 8]}"  # an interface's name has 15 letters
        self.hosts = SshHosts()
        subnet = f"10.98.{76 + Namespaces.made % 8}"
        self.addresses = [f"{subnet}.{i + 1}" for i in range(count)]
        self.run("link", "add", f"{self.prefix}b", "type", "bridge")
        try:
            self.run("addr", "add", f"{subnet}.254/24", "dev", f"{self.prefix}b")
            self.run("link", "set", f"{self.prefix}b", "up")
            for i, address in enumerate(self.addresses):
                space = f"{self.prefix}n{i}"
                self.run("netns", "add", space)
                self.run("link", "add", self.outside(i), "type", "veth", "peer", "name", "eth0", "netns", space)
                self.run("link", "set", self.outside(i), "master", f"{self.prefix}b", "up")
                self.run("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
                self.run("-n", space, "link", "set", "eth0", "up")
                self.run("-n", space, "link", "set", "lo", "up")
                self.hosts.serve(address, 22, ("ip", "netns", "exec", space))
                self.hosts.name(address, address, 22)
            for address in self.addresses:
                if not until(lambda: self.hosts.answers(address)):
                    raise RuntimeError((self.hosts.path / "sshd.log").read_text())
        except Exception:
            self.close()
            raise

    def outside(self, i):
        return f"{self.prefix}v{i}"

    @staticmethod
    def run(*words):
        subprocess.run(["ip", *words], check=True)

    def cut(self, i):
        self.run("link", "set", self.outside(i), "down")

    def slow_down(self, i, rate):
        """What host `i` sends, and what it receives."""
        shaped = ["root", "tbf", "rate", rate, "burst", "64kb", "latency", "2s"]
        subprocess.run(["tc", "qdisc", "add", "dev", self.outside(i), *shaped], check=True)
        subprocess.run(["tc", "-n", f"{self.prefix}n{i}", "qdisc", "add", "dev", "eth0", *shaped], check=True)

    def close(self):
        self.hosts.close()
        for i in range(len(self.addresses)):
            # What sshd has started beyond a cut would wait for its client for a quarter of an hour.
            found = subprocess.run(["ip", "netns", "pids", f"{self.prefix}n{i}"], capture_output=True, text=True)
            for pid in map(int, found.stdout.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # The link first: a namespace, and its end of it, lives as long as a process in it.
            subprocess.run(["ip", "link", "del", self.outside(i)], stderr=subprocess.DEVNULL)
            subprocess.run(["ip", "netns", "del", f"{self.prefix}n{i}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", f"{self.prefix}b"], stderr=subprocess.DEVNULL)
