#include "machine/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

class Folder {  // deleted with its contents
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "topology-XXXXXX";
    path_            = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const fs::path& file, std::string_view text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(Cpuinfo, ReadsTheFirstProcessorOnly) {
  const CpuIdentity cpu = parse_cpuinfo(
      "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n"
      "stepping\t: 2\nflags\t\t: sse2 fma avx2\n\nprocessor\t: 1\nvendor_id\t: Other\nmodel name\t: "
      "Another\n");
  EXPECT_EQ(cpu.vendor, "AuthenticAMD");
  EXPECT_EQ(cpu.model_name, "AMD EPYC");
  EXPECT_EQ(cpu.family, 25);
  EXPECT_EQ(cpu.model, 1);
  EXPECT_EQ(cpu.stepping, 2);
  EXPECT_EQ(cpu.flags, (std::vector<std::string>{"avx2", "fma", "sse2"}));
}

TEST(Cpuinfo, SurvivesNothingAndNoise) {
  EXPECT_EQ(parse_cpuinfo("").model_name, "");
  EXPECT_EQ(parse_cpuinfo("no colon here\n: no key\nmodel : x\n").model, 0);
  EXPECT_EQ(parse_cpuinfo("Features : asimd crc32\n").flags.size(), 2u);  // arm64 names them so
}

TEST(Microarchitecture, TellsGenerationsApart) {
  const auto name = [](const char* vendor, int family, int model) {
    return microarchitecture(
        {.vendor = vendor, .model_name = {}, .family = family, .model = model, .flags = {}});
  };
  EXPECT_EQ(name("AuthenticAMD", 0x17, 0x31), "zen2");
  EXPECT_EQ(name("AuthenticAMD", 0x19, 0x01), "zen3");
  EXPECT_EQ(name("AuthenticAMD", 0x19, 0x11), "zen4");
  EXPECT_EQ(name("AuthenticAMD", 0x19, 0x20), "zen3");
  EXPECT_EQ(name("AuthenticAMD", 0x19, 0x61), "zen4");
  EXPECT_EQ(name("AuthenticAMD", 0x1a, 0x02), "zen5");
  EXPECT_EQ(name("GenuineIntel", 6, 0x8f), "sapphirerapids");
  EXPECT_EQ(name("GenuineIntel", 6, 0x01), "");
  EXPECT_EQ(name("", 0, 0), "");
}

TEST(Caches, AreReadFromSysfsAndCounted) {
  const Folder folder;
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string base = "cpu" + std::to_string(cpu) + "/cache/index";
    const auto index       = [&](int i, const char* level, const char* type, const char* size,
                           const std::string& shared) {
      const std::string at = base + std::to_string(i) + "/";
      folder.write(at + "level", std::string(level) + "\n");
      folder.write(at + "type", std::string(type) + "\n");
      folder.write(at + "size", std::string(size) + "\n");
      folder.write(at + "coherency_line_size", "64\n");
      folder.write(at + "shared_cpu_list", shared + "\n");
    };
    const std::string pair = cpu < 2 ? "0-1" : "2-3";
    index(0, "1", "Data", "32K", pair);
    index(1, "1", "Instruction", "64K", pair);
    index(2, "2", "Unified", "1024K", pair);
    index(3, "3", "Unified", "32M", "0-3");
  }
  folder.write("online", "0-3\n");  // a file beside the folders
  const std::vector<CpuCache> caches = read_caches(folder.path());
  const std::vector<CpuCache> expected{{1, "data", 32 << 10, 64, 2, 2},
                                       {1, "instruction", 64 << 10, 64, 2, 2},
                                       {2, "unified", 1 << 20, 64, 2, 2},
                                       {3, "unified", 32 << 20, 64, 4, 1}};
  EXPECT_EQ(caches, expected);
  EXPECT_TRUE(read_caches(folder.path() / "absent").empty());
}

TEST(DataCache, NeverGivesTheInstructionCache) {
  Topology machine;
  machine.caches = {{1, "instruction", 64 << 10, 64, 1, 1}, {1, "data", 32 << 10, 64, 1, 1}};
  ASSERT_NE(data_cache(machine, 1), nullptr);
  EXPECT_EQ(data_cache(machine, 1)->bytes, 32 << 10);
  EXPECT_EQ(data_cache(machine, 2), nullptr);
}

TEST(SmallFiles, AreParsed) {
  EXPECT_EQ(parse_selected("always [madvise] never\n"), "madvise");
  EXPECT_EQ(parse_selected("always"), "");
  EXPECT_EQ(parse_selected("] ["), "");
  EXPECT_EQ(parse_cpu_list("0-2,5\n"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(parse_cpu_list("7"), std::vector<int>{7});
  EXPECT_TRUE(parse_cpu_list("\n").empty());
  EXPECT_EQ(parse_distribution("ID=x\nPRETTY_NAME=\"Some Linux 12\"\n"), "Some Linux 12");
  EXPECT_EQ(parse_distribution(""), "");
  EXPECT_EQ(read_text("/nowhere/at/all"), std::nullopt);
}

TEST(Topology, OfThisMachineHangsTogether) {
  const Topology& machine = topology();
  EXPECT_GE(machine.packages, 1);
  EXPECT_GE(machine.cores, machine.packages);
  EXPECT_GE(machine.threads, machine.cores);
  EXPECT_GE(machine.numa_nodes, 1);
  EXPECT_FALSE(machine.allowed_cpus.empty());
  EXPECT_GT(machine.memory_bytes, 0);
  EXPECT_GT(machine.page_bytes, 0);
  EXPECT_FALSE(machine.kernel.empty());
  for (const CpuCache& cache : machine.caches) {
    EXPECT_GT(cache.bytes, 0);
    EXPECT_GE(cache.shared_by, 1);
    EXPECT_GE(cache.instances, 1);
  }
}

}  // namespace
}  // namespace fathom::machine
