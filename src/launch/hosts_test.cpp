#include "launch/hosts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

namespace fathom::launch {
namespace {

std::vector<LaunchHost> hosts_of(const std::vector<std::string>& entries) {
  return parse_hosts(entries).value();
}
std::string error_of(const std::string& entry) {
  const auto hosts = parse_hosts({entry});
  return hosts ? "" : hosts.error().message;
}

TEST(LaunchHosts, AreReadAsMpirunsUsersWriteThem) {
  EXPECT_EQ(hosts_of({"a:4", "b"}), (std::vector<LaunchHost>{{"a", 4}, {"b", 1}}));
  EXPECT_EQ(hosts_of({"me@a.example.org:12"}), (std::vector<LaunchHost>{{"me@a.example.org", 12}}));
  EXPECT_EQ(hosts_of({"[fe80::1%eth0]:2", "[::1]", "me@[::1]:3"}),
            (std::vector<LaunchHost>{{"fe80::1%eth0", 2}, {"::1", 1}, {"me@::1", 3}}));
  EXPECT_EQ(hosts_of({"a", "b:2", "a"}), (std::vector<LaunchHost>{{"a", 2}, {"b", 2}}));
  EXPECT_TRUE(hosts_of({}).empty());
}

TEST(LaunchHosts, SaysWhichEntryIsWrong) {
  EXPECT_NE(error_of("a:0").find("a:0: '0' is no number of ranks"), std::string::npos) << error_of("a:0");
  for (const char* bad : {"a:",  "a:x", "a:-1",    "a:1.5",  "a:4097", "a:99999999999999999999",
                          "",    ":4",  "fe80::1", "[::1]4", "::1]",   "[]",
                          "@a",  "a@",  "a b",     "a;rm",   "$(x)",   "-oProxyCommand=x",
                          "a/b", "a'"})
    EXPECT_NE(error_of(bad), "") << bad;
}

TEST(LaunchHosts, FileOfHosts) {
  const auto path = std::filesystem::temp_directory_path() / "launch_hosts_test.hosts";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_hostfile(path.string());
  };
  EXPECT_EQ(read("# all of them\n\na slots=4 # first\n  b:2\nc\na slots=1\n").value(),
            (std::vector<LaunchHost>{{"a", 5}, {"b", 2}, {"c", 1}}));
  const auto why = [&](const std::string& text) { return read(text).error().message; };
  EXPECT_NE(why("a\nb slot=4\n").find("line 2: 'slot=4' is not known"), std::string::npos)
      << why("a\nb slot=4\n");
  EXPECT_NE(why("a slots=none").find("line 1: slots=none"), std::string::npos) << why("a slots=none");
  EXPECT_NE(why("# nobody\n").find("names no host"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(read_hostfile(path.string()).error().message.find("cannot be read"), std::string::npos);
}

TEST(LaunchHosts, RanksFillHostsInTheirOrder) {
  const std::vector<LaunchHost> hosts = {{"a", 2}, {"b", 3}, {"c", 1}};
  EXPECT_EQ(place_ranks(hosts, {}).value(),
            (std::vector<NodeRanks>{{0, "a", 0, 2}, {1, "b", 2, 3}, {2, "c", 5, 1}}));
  EXPECT_EQ(place_ranks(hosts, 3).value(), (std::vector<NodeRanks>{{0, "a", 0, 2}, {1, "b", 2, 1}}));
  EXPECT_EQ(place_ranks(hosts, 1).value(), (std::vector<NodeRanks>{{0, "a", 0, 1}}));
  EXPECT_NE(place_ranks(hosts, 7).error().message.find("room for 6"), std::string::npos);
  // Every rank once, whatever the shape.
  for (int most : {1, 2, 3, 5, 7})
    for (int ranks = 1; ranks <= 3 * most; ++ranks) {
      const auto nodes = place_ranks({{"a", most}, {"b", most}, {"c", most}}, ranks).value();
      int next         = 0;
      for (const NodeRanks& node : nodes) {
        EXPECT_EQ(node.first, next);
        EXPECT_GT(node.count, 0);
        EXPECT_LE(node.count, most);
        next += node.count;
      }
      EXPECT_EQ(next, ranks);
    }
}

TEST(LaunchHosts, KnowsThisHost) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
  EXPECT_TRUE(is_this_host(this_host_name()));
  EXPECT_FALSE(is_this_host("somebody@localhost"));  // may be another user, whom ssh makes
  EXPECT_FALSE(is_this_host("10.0.0.1"));
  EXPECT_TRUE(resolves_to_loopback("localhost"));
  EXPECT_FALSE(resolves_to_loopback("10.0.0.1"));
  EXPECT_EQ(without_user("me@a"), "a");
  EXPECT_EQ(without_user("a"), "a");
}

}  // namespace
}  // namespace fathom::launch
