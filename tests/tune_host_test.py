#!/usr/bin/env python3
"""tools/tune_host on a made-up /proc and /sys: what it shows, sets, keeps and puts back."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/tune_host"


class TuneHost(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.put("sys/devices/system/cpu/online", "0-3\n")
        for cpu in range(4):
            self.put(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave\n")
        self.put("proc/sys/kernel/numa_balancing", "1\n")
        self.put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
        self.put("sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n")
        self.put("proc/irq/7/smp_affinity_list", "0-3\n")
        self.put("proc/irq/12/smp_affinity_list", "0-1\n")
        self.put("proc/11/comm", "bash\n")

    def put(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def files(self):
        return {str(path): path.read_text().strip() for path in self.root.rglob("*") if path.is_file()}

    def tune(self, *args, code=0):
        result = subprocess.run([sys.executable, TOOL, *args, "--root", self.root], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def test_show_changes_nothing_and_names_what_would_change(self):
        before = self.files()
        lines = self.tune("show", "--measuring-cpus", "2-3").stdout.splitlines()
        self.assertEqual(self.files(), before)
        self.assertEqual(sum("-> performance" in line for line in lines), 4)
        self.assertTrue(any("numa_balancing" in line and "-> 0" in line for line in lines), lines)
        self.assertTrue(any("defrag" in line and "as wanted" in line for line in lines), lines)
        self.assertTrue(any("irq/7" in line and "-> 0,1" in line for line in lines), lines)
        self.assertTrue(any("irq/12" in line and "as wanted" in line for line in lines), lines)

    def test_apply_sets_and_restore_puts_back(self):
        before = self.files()
        said = self.tune("apply", "--measuring-cpus", "2,3").stdout
        self.assertIn("7 set, 2 were as wanted", said)
        self.assertEqual((self.root / "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor").read_text(), "performance")
        self.assertEqual((self.root / "proc/irq/7/smp_affinity_list").read_text(), "0,1")
        self.assertIn("0 set, 9 were as wanted", self.tune("apply", "--measuring-cpus", "2,3").stdout)
        self.assertIn("7 put back", self.tune("restore").stdout)
        after = self.files()
        after[str(self.root / "sys/kernel/mm/transparent_hugepage/enabled")] = "[always] madvise never"  # the kernel's brackets
        self.assertEqual(after, before)
        self.assertIn("nothing to put back", self.tune("restore").stdout)

    def test_a_second_apply_keeps_the_first_values(self):
        self.tune("apply")
        governor = self.root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
        governor.write_text("schedutil\n")  # somebody else
        self.tune("apply")
        kept = json.loads((self.root / "run/fathom/tune_host.json").read_text())
        self.assertEqual(kept[str(governor)], "powersave")

    def test_a_setting_that_is_refused_is_named_and_the_others_are_set(self):
        refusing = self.root / "proc/sys/kernel/numa_balancing"
        refusing.unlink()
        refusing.symlink_to("/proc/version")  # can be read, cannot be written
        result = self.tune("apply", code=1)
        self.assertIn("numa_balancing", result.stderr)
        self.assertIn("5 set", result.stdout)

    def test_a_host_without_these_files(self):
        with tempfile.TemporaryDirectory() as empty:
            self.root = pathlib.Path(empty)
            self.assertIn("nothing to set", self.tune("show").stdout)
            self.assertIn("0 set", self.tune("apply").stdout)

    def test_irqbalance_is_named(self):
        self.put("proc/42/comm", "irqbalance\n")
        self.assertIn("irqbalance", self.tune("show", "--measuring-cpus", "1").stderr)

    def test_bad_cpus(self):
        for cpus in ("x", "0-3", "9", "1-"):
            self.assertIn("tune_host: ", self.tune("apply", "--measuring-cpus", cpus, code=5).stderr)
        self.assertFalse((self.root / "run").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
