#include "launch/nccl_profile.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launch/nccl_variables.h"

namespace fathom::launch {
namespace {

std::string why(std::string_view name, std::string_view value) {
  const Status good = check_nccl_setting(name, value);
  return good ? "" : good.error().message;
}

TEST(NcclProfile, EveryProfileIsWhatNcclTakes) {
  ASSERT_GE(nccl_profiles().size(), 3u);
  for (const NcclProfile& profile : nccl_profiles()) {
    EXPECT_TRUE(find_nccl_profile(profile.name)) << profile.name;
    EXPECT_NE(profile.source.find("https://"), std::string::npos) << profile.name;
    EXPECT_GT(profile.needs.count, 0) << profile.name;
    for (const NcclSetting& setting : profile.settings) {
      EXPECT_EQ(why(setting.name, setting.value), "");
      EXPECT_FALSE(setting.why.empty()) << setting.name;
    }
  }
}

// What the catalog asks for (distributed-003).
TEST(NcclProfile, HasThePublishedValues) {
  const auto value = [](const char* profile, const char* name) {
    const NcclProfile found = find_nccl_profile(profile).value();
    for (const NcclSetting& setting : found.settings)
      if (setting.name == name) return setting.value;
    return std::string("(none)");
  };
  EXPECT_EQ(value("b200x8", "NCCL_ALGO"), "Ring,Tree");
  EXPECT_EQ(value("b200x8", "NCCL_PROTO"), "LL128");
  EXPECT_EQ(value("b200x8", "NCCL_NET_GDR_LEVEL"), "SYS");  // 5
  EXPECT_EQ(value("b200x8", "NCCL_P2P_LEVEL"), "NVL");
  EXPECT_EQ(value("b200x8", "NCCL_NVLS_ENABLE"), "1");
  EXPECT_EQ(value("b200x8", "NCCL_IB_QPS_PER_CONNECTION"), "4");
  EXPECT_EQ(value("nvl72", "NCCL_MIN_CTAS"), "32");
  EXPECT_EQ(value("nvl72", "NCCL_IB_HCA"), "mlx5");
  EXPECT_EQ(value("hopper", "NCCL_NVLS_ENABLE"), "0");  // never on where this project runs
}

TEST(NcclProfile, TakesWhatNcclParses) {
  for (const char* good :
       {"Ring", "ring,tree", "^NVLS", "Ring;allreduce:Tree,NVLSTree", "allreduce:tree;broadcast:ring"})
    EXPECT_EQ(why("NCCL_ALGO", good), "") << good;
  for (const char* good : {"LL", "LL128,Simple", "^LL128;allreduce:LL128"})
    EXPECT_EQ(why("NCCL_PROTO", good), "") << good;
  for (const char* good : {"LOC", "NVL", "SYS", "0", "5"})
    EXPECT_EQ(why("NCCL_NET_GDR_LEVEL", good), "") << good;
  for (const char* good : {"mlx5", "=mlx5_0,mlx5_1:1", "^mlx5_3", "^=mlx5_3:1"})
    EXPECT_EQ(why("NCCL_IB_HCA", good), "") << good;
  for (const char* good : {"1", "32", "64"}) EXPECT_EQ(why("NCCL_MIN_CTAS", good), "") << good;
}

TEST(NcclProfile, NamesTheVariableThatNcclWouldNotTake) {
  EXPECT_NE(why("NCCL_ALGO", "Rign").find("NCCL_ALGO=Rign: NCCL would not take it; 'Rign' is none of Tree"),
            std::string::npos)
      << why("NCCL_ALGO", "Rign");
  EXPECT_NE(why("NCCL_MIN_CTA", "32").find("no variable 'NCCL_MIN_CTA'; did you mean 'NCCL_MIN_CTAS'?"),
            std::string::npos)
      << why("NCCL_MIN_CTA", "32");
  for (const char* bad : {"", "Ring,", "Ring;Tree", "alreduce:Ring", "Ring Tree", "^"})
    EXPECT_NE(why("NCCL_ALGO", bad), "") << bad;
  for (const char* bad : {"LL64", "ll 128", ""}) EXPECT_NE(why("NCCL_PROTO", bad), "") << bad;
  for (const char* bad : {"6", "nvl", "-1", "NVLINK", ""}) EXPECT_NE(why("NCCL_P2P_LEVEL", bad), "") << bad;
  for (const char* bad : {"0", "65", "32 ", "many", "3.5", ""})
    EXPECT_NE(why("NCCL_MIN_CTAS", bad), "") << bad;
  for (const char* bad : {"0", "129"}) EXPECT_NE(why("NCCL_IB_QPS_PER_CONNECTION", bad), "") << bad;
  for (const char* bad : {"", "^", "mlx5,,mlx4", "mlx5 0"}) EXPECT_NE(why("NCCL_IB_HCA", bad), "") << bad;
  for (const char* bad : {"3", "on"}) EXPECT_NE(why("NCCL_NVLS_ENABLE", bad), "") << bad;
  EXPECT_NE(why("PATH", "/bin"), "");
}

TEST(NcclProfile, FileOfTheUser) {
  const auto path = std::filesystem::temp_directory_path() / "nccl_profile_test.conf";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return find_nccl_profile(path.string());
  };
  const auto profile = read("# mine\nNCCL_ALGO=Ring\n export NCCL_MIN_CTAS=8 # more\n");
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->settings,
            (std::vector<NcclSetting>{{"NCCL_ALGO", "Ring", ""}, {"NCCL_MIN_CTAS", "8", ""}}));
  EXPECT_FALSE(nccl_misfit(*profile, {}));  // the user says that it fits
  const auto error = [&](const std::string& text) { return read(text).error().message; };
  EXPECT_NE(error("NCCL_ALGO=Ring\nNCCL_PROTO=LL64\n").find("line 2: NCCL_PROTO=LL64"), std::string::npos);
  EXPECT_NE(error("NCCL_ALGO\n").find("no NAME=value"), std::string::npos);
  EXPECT_NE(error("\n").find("sets nothing"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(find_nccl_profile(path.string()).error().message.find("cannot be read"), std::string::npos);
  EXPECT_NE(find_nccl_profile("hoper").error().message.find("did you mean 'hopper'"), std::string::npos);
}

TEST(NcclProfile, RefusesOtherHardwareByType) {
  const auto misfit = [](const char* profile, const HostHardware& hardware) {
    const auto found = nccl_misfit(find_nccl_profile(profile).value(), hardware);
    return found ? found->reason : "";
  };
  const HostHardware none{{}, "no driver", {}}, h200{{"NVIDIA H200", "NVIDIA H200"}, "", {}},
      b200{std::vector<std::string>(8, "NVIDIA B200"), "", {"mlx5_0"}},
      tray{std::vector<std::string>(4, "NVIDIA GB200"), "", {"mlx5_0"}},
      bare_tray{std::vector<std::string>(4, "NVIDIA GB200"), "", {"eth0"}};
  EXPECT_EQ(misfit("hopper", none), "needs_gpus(2 x H100 or H200)");
  EXPECT_EQ(misfit("hopper", h200), "");
  EXPECT_EQ(misfit("hopper", {{"NVIDIA H200"}, "", {}}), "needs_gpus(2 x H100 or H200)");
  EXPECT_EQ(misfit("b200x8", h200), "needs_gpus(8 x B200)");
  EXPECT_EQ(misfit("b200x8", b200), "");
  EXPECT_EQ(misfit("b200x8", {std::vector<std::string>(8, "NVIDIA GB200"), "", {}}), "needs_gpus(8 x B200)");
  EXPECT_EQ(misfit("nvl72", tray), "");
  EXPECT_EQ(misfit("nvl72", bare_tray), "needs_feature(rdma)");
  EXPECT_EQ(misfit("nvl72", b200), "needs_gpus(4 x GB200 or GB300)");
}

TEST(NcclProfile, MulticastIsTakenOut) {
  EXPECT_EQ(without_nvls("Ring,NVLS,Tree"), "Ring,Tree");
  EXPECT_EQ(without_nvls("nvlstree"), "");
  EXPECT_EQ(without_nvls("Ring;allreduce:NVLS;broadcast:Ring"), "Ring;broadcast:Ring");
  EXPECT_EQ(without_nvls("^PAT"), "^PAT,NVLS,NVLSTree");
  EXPECT_EQ(without_nvls("^NVLS"), "^NVLS,NVLSTree");
  for (const NcclProfile& profile : nccl_profiles())
    for (const NcclSetting& setting : without_multicast(profile.settings)) {
      EXPECT_EQ(why(setting.name, setting.value), "");
      EXPECT_TRUE(setting.name != "NCCL_NVLS_ENABLE" || setting.value == "0") << profile.name;
    }
}

// A shell reads what is printed, and the next reader gets the same settings.
TEST(NcclProfile, ShellReadsWhatIsPrinted) {
  for (const NcclProfile& profile : nccl_profiles()) {
    const auto path = std::filesystem::temp_directory_path() / "nccl_profile_test.sh";
    std::string wanted;
    {
      std::ofstream script(path);
      script << "set -eu\n" << to_shell(profile);
      for (const NcclSetting& setting : profile.settings) {
        script << "printf '%s\\n' \"$" << setting.name << "\"\n";
        wanted += setting.value + "\n";
      }
    }
    FILE* shell = popen(("env -i sh " + path.string()).c_str(), "r");
    ASSERT_TRUE(shell);
    char buffer[4096] = {};
    const size_t n    = fread(buffer, 1, sizeof buffer - 1, shell);
    EXPECT_EQ(pclose(shell), 0);
    EXPECT_EQ(std::string(buffer, n), wanted);
    std::filesystem::remove(path);
    const auto again = nccl_profile_from_json(to_json(profile));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->settings, profile.settings);
    EXPECT_EQ(nccl_misfit(*again, {})->reason, nccl_misfit(profile, {})->reason);
  }
}

}  // namespace
}  // namespace fathom::launch
