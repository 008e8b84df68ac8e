// Ranks that are processes, some of which die, hang, come late or were started wrongly.
#include "comm/tcp_group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <thread>

#include "comm/group_checks.h"
#include "comm/thread_group.h"
#include "core/expect.h"

namespace fathom::comm {
namespace {

using namespace std::chrono_literals;

// A rank as a forked process, and what it reports: lines of text.
class RankProcess {
 public:
  // `rank_main` says things with `say`; what it throws is said too.
  using Say = std::function<void(const std::string&)>;
  explicit RankProcess(const std::function<void(const Say&)>& rank_main) {
    int fds[2];
    FATHOM_SYSTEM(pipe(fds));
    pid_ = FATHOM_SYSTEM(fork());
    if (pid_ == 0) {
      const auto say = [fd = fds[1]](const std::string& line) {
        const std::string ended = line + "\n";
        if (write(fd, ended.data(), ended.size()) < 0) _exit(1);
      };
      try {
        rank_main(say);
      } catch (const GroupError& error) {
        say(fmt::format("{} rank {} {}: {}", to_string(error.cause()), error.rank(),
                        to_string(error.operation()), error.what()));
      } catch (const std::exception& error) {
        say(error.what());
      }
      _exit(0);
    }
    close(fds[1]);
    lines_ = fdopen(fds[0], "r");
  }
  ~RankProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    fclose(lines_);
  }
  RankProcess(const RankProcess&)            = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // The next line; empty at the end.
  std::string line() {
    char text[512];
    if (!fgets(text, sizeof text, lines_)) return "";
    const std::string line(text);
    return line.substr(0, line.size() - 1);
  }
  void signal(int number) { kill(pid_, number); }

 private:
  pid_t pid_   = 0;
  FILE* lines_ = nullptr;
};

using Processes = std::vector<std::unique_ptr<RankProcess>>;

Rendezvous at(int rank, int size, int port) { return {.port = port, .rank = rank, .size = size}; }

// A process for each rank, which joins the group and calls rank_main.
Processes on_processes(int size, std::chrono::milliseconds timeout,
                       const std::function<void(Group&, const RankProcess::Say&)>& rank_main) {
  const int port = free_tcp_port();
  Processes ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<RankProcess>([=](const RankProcess::Say& say) {
      const auto group = join_tcp_group(at(rank, size, port), {.timeout = timeout});
      rank_main(*group, say);
    }));
  return ranks;
}

// Sums until something happens; says so after each of the first few.
void sum_for_ever(Group& group, const RankProcess::Say& say) {
  std::vector<float> data(50'000);
  for (int round = 0;; ++round) {
    group.all_reduce(std::span(data));
    if (round < 3) say("summed");
  }
}

// What a rank says after it has said so; a sum that one rank has may be cut off on another.
std::string after_sums(RankProcess& rank) {
  for (;;)
    if (const std::string line = rank.line(); line != "summed") return line;
}

void expect_starts(const std::string& text, const std::string& start) {
  EXPECT_EQ(text.substr(0, start.size()), start) << text;
}

class TcpGroups : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, TcpGroups, testing::Values(1, 2, 3, 5));

TEST_P(TcpGroups, CollectivesAreTheirDefinition) {
  const Processes ranks = on_processes(GetParam(), 20s, [](Group& group, const RankProcess::Say& say) {
    say("collectives " + wrong_collectives(group));
  });
  for (const auto& rank : ranks) EXPECT_EQ(rank->line(), "collectives ");
}

TEST_P(TcpGroups, RandomProgramsGiveTheSumsOfPlainLoops) {
  const Processes ranks = on_processes(GetParam(), 20s, [](Group& group, const RankProcess::Say& say) {
    std::string wrong;
    for (uint64_t seed = 1; seed <= 8 && wrong.empty(); ++seed) wrong = wrong_random_program(group, seed, 15);
    say("programs " + wrong);
  });
  for (const auto& rank : ranks) EXPECT_EQ(rank->line(), "programs ");
}

// A lower bound of a time, which a busy machine only lengthens.
TEST(TcpGroup, ALimitedRankTakesAsLongAsItsRateSays) {
  constexpr int64_t kRate = 20'000'000, kBytes = 3'000'000;
  const Processes ranks = on_processes(2, 20s, [](Group& group, const RankProcess::Say& say) {
    limit_sending(group, kRate);
    std::vector<uint8_t> mine(kBytes, 7), all(2 * kBytes);
    group.barrier();
    const auto began = std::chrono::steady_clock::now();
    group.all_gather<uint8_t>(mine, all);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    say(took.count() > 0.5 * kBytes / kRate && all.front() == 7 && all.back() == 7
            ? "paced"
            : fmt::format("{} s", took.count()));
  });
  for (const auto& rank : ranks) EXPECT_EQ(rank->line(), "paced");
}

TEST(TcpGroup, OnlyGroupsOverTcpAreLimited) {
  EXPECT_THROW(limit_sending(*make_thread_groups(1).front(), 1), ContractError);
  const auto alone = join_tcp_group(at(0, 1, 0));
  EXPECT_THROW(limit_sending(*alone, 0), ContractError);
  limit_sending(*alone, 1);
}

TEST(TcpGroup, AKilledRankIsNamedAtOnce) {
  // Long, so that what ends the operation is the death and not the timeout.
  Processes ranks = on_processes(3, 60s, sum_for_ever);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ranks[1]->line(), "summed");
  ranks[1]->signal(SIGKILL);
  for (const size_t rank : {0, 2}) {
    expect_starts(after_sums(*ranks[rank]),
                  "died rank 1 all_reduce: rank 1 died while others were in all_reduce");
  }
}

TEST(TcpGroup, AStoppedRankIsNamedAfterTheTimeoutAndToldWhenItGoesOn) {
  Processes ranks = on_processes(3, 500ms, sum_for_ever);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ranks[2]->line(), "summed");
  ranks[2]->signal(SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  for (const size_t rank : {0, 1}) {
    expect_starts(after_sums(*ranks[rank]), "timed_out rank 2 all_reduce: rank 2 did not come to all_reduce");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - stopped, 10s);
  ranks[2]->signal(SIGCONT);
  expect_starts(ranks[2]->line(), "timed_out rank 2 all_reduce");
}

TEST(TcpGroup, BlameFollowsWhoWaitsForWhom) {
  Processes ranks = on_processes(3, 300ms, [](Group& group, const RankProcess::Say&) {
    std::vector<float> data(8);
    if (group.rank() == 2) raise(SIGSTOP);
    group.receive(std::span(data), group.rank() + 1);  // 0 waits for 1, which waits for 2
  });
  for (const size_t rank : {0, 1}) expect_starts(ranks[rank]->line(), "timed_out rank 2 message");
}

TEST(TcpGroup, RanksThatWaitForEachOtherAreTold) {
  Processes ranks = on_processes(2, 100ms, [](Group& group, const RankProcess::Say&) {
    std::vector<float> data(8);
    group.receive(std::span(data), 1 - group.rank());
  });
  for (const auto& rank : ranks) EXPECT_NE(rank->line().find("wait for each other"), std::string::npos);
}

TEST(TcpGroup, ALateRankIsWaitedFor) {
  const int port = free_tcp_port();
  const auto sum = [=](int rank) {
    return [=](const RankProcess::Say& say) {
      const auto group = join_tcp_group(at(rank, 2, port), {.timeout = 20s});
      std::vector<int32_t> data{rank + 1};
      group->all_reduce(std::span(data));
      say(std::to_string(data[0]));
    };
  };
  RankProcess one(sum(1));
  std::this_thread::sleep_for(100ms);  // nobody listens yet
  RankProcess zero(sum(0));
  EXPECT_EQ(zero.line(), "3");
  EXPECT_EQ(one.line(), "3");
}

TEST(TcpGroup, RanksThatDoNotJoinAreNamed) {
  const int port  = free_tcp_port();
  const auto join = [=](int rank) {
    return [=](const RankProcess::Say&) { join_tcp_group(at(rank, 4, port), {.timeout = 300ms}); };
  };
  RankProcess zero(join(0)), two(join(2));
  expect_starts(zero.line(), "timed_out rank 1 join: ranks 1, 3 did not come to 127.0.0.1:");
  // Told by rank 0, or its own time was over a moment earlier.
  expect_starts(two.line(), "timed_out rank ");
}

TEST(TcpGroup, WithoutRank0TheOthersSaySo) {
  const int port = free_tcp_port();
  RankProcess one([=](const RankProcess::Say&) { join_tcp_group(at(1, 2, port), {.timeout = 100ms}); });
  expect_starts(one.line(),
                fmt::format("timed_out rank 0 join: rank 0 was not at 127.0.0.1:{} within 0.1 s", port));
}

TEST(TcpGroup, AnotherWorldSizeAndARankThatComesTwiceAreMismatches) {
  for (const auto& [rank, size, said] :
       {std::tuple(1, 4,
                   "mismatch rank 1 join: rank 1 was started for a group of 4 ranks, rank 0 for one of 3"),
        std::tuple(2, 3, "mismatch rank 2 join: rank 2 came twice")}) {
    const int port  = free_tcp_port();
    const auto join = [=](int rank, int size) {
      return [=](const RankProcess::Say&) { join_tcp_group(at(rank, size, port), {.timeout = 20s}); };
    };
    RankProcess zero(join(0, 3)), two(join(2, 3)), wrong(join(rank, size));
    for (RankProcess* process : {&zero, &two, &wrong}) expect_starts(process->line(), said);
  }
}

TEST(TcpGroup, StrangersAtTheRendezvousAreTurnedAway) {
  const int port = free_tcp_port();
  const auto sum = [=](int rank) {
    return [=](const RankProcess::Say& say) {
      const auto group = join_tcp_group(at(rank, 2, port), {.timeout = 20s});
      group->barrier();
      say("joined");
    };
  };
  RankProcess zero(sum(0));
  // One says something else, one says nothing and stays, one connects and goes.
  RankProcess strangers([=](const RankProcess::Say& say) {
    const std::string connect = fmt::format("/dev/tcp/127.0.0.1/{}", port);
    const std::string script  = fmt::format(
         "until exec 3<>{0}; do sleep 0.01; done 2>/dev/null; exec 4<>{0}; exec 5<>{0}; "
          "echo GET / HTTP/1.1 and quite a few more words than a greeting has bytes >&3; exec 5<&-; sleep 0.05",
         connect);
    say(std::system(fmt::format("bash -c '{}'", script).c_str()) == 0 ? "came" : "failed");
    pause();
  });
  EXPECT_EQ(strangers.line(), "came");
  RankProcess one(sum(1));
  EXPECT_EQ(zero.line(), "joined");
  EXPECT_EQ(one.line(), "joined");
}

TEST(TcpGroup, AWrongSizeIsAMismatchOnAllRanks) {
  Processes ranks = on_processes(3, 20s, [](Group& group, const RankProcess::Say&) {
    std::vector<float> data(group.rank() == 1 ? 12 : 16);
    group.all_reduce(std::span(data));
  });
  for (const auto& rank : ranks) {
    const std::string line = rank->line();
    expect_starts(line, "mismatch rank ");
    EXPECT_NE(line.find("rank 1 called all_reduce (collective 1) of 48 bytes (sum of fp32)"),
              std::string::npos)
        << line;
  }
}

TEST(TcpGroup, ARankThatLeavesIsNamed) {
  Processes ranks = on_processes(3, 60s, [](Group& group, const RankProcess::Say&) {
    group.barrier();
    if (group.rank() != 1) group.barrier();
  });
  for (const size_t rank : {0, 2}) expect_starts(ranks[rank]->line(), "left rank 1 barrier");
}

TEST(TcpGroup, LeavingAfterTheLastOperationIsNoError) {
  for (int i = 0; i < 5; ++i) {
    Processes ranks = on_processes(3, 20s, [](Group& group, const RankProcess::Say& say) {
      std::vector<float> data(100'000, 1);
      group.broadcast(std::span(data), 0);  // rank 0 is through before the others
      group.all_reduce(std::span(data));
      say("done");
    });
    for (const auto& rank : ranks) EXPECT_EQ(rank->line(), "done");
  }
}

TEST(TcpGroup, APortInUseIsAnErrorThatNamesIt) {
  const int listener = FATHOM_SYSTEM(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t bytes = sizeof address;
  FATHOM_SYSTEM(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes));
  FATHOM_SYSTEM(listen(listener, 1));
  FATHOM_SYSTEM(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes));
  const int port = ntohs(address.sin_port);
  try {
    join_tcp_group(at(0, 2, port), {.timeout = 1s});
    ADD_FAILURE() << "two listen at one port";
  } catch (const SystemError& error) {
    expect_starts(error.what(), fmt::format("rank 0 cannot listen at 127.0.0.1:{}: ", port));
  }
  close(listener);
}

class Environment : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static constexpr const char* kNames[] = {"WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT",
                                           "FATHOM_GROUP_TIMEOUT"};
};

TEST_F(Environment, HasNoGroupWithoutWorldSize) {
  const auto none = rendezvous_from_environment();
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
}

TEST_F(Environment, NamesAreThoseOfTorchrun) {
  setenv("WORLD_SIZE", "4", 1);
  setenv("RANK", "3", 1);
  setenv("MASTER_ADDR", "localhost", 1);
  setenv("MASTER_PORT", "29500", 1);
  setenv("FATHOM_GROUP_TIMEOUT", "7", 1);
  const auto found = rendezvous_from_environment();
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->size, 4);
  EXPECT_EQ((*found)->rank, 3);
  EXPECT_EQ((*found)->address, "localhost");
  EXPECT_EQ((*found)->port, 29500);
  EXPECT_EQ(group_options_from_environment().value().timeout, 7s);
}

TEST_F(Environment, WhatIsWrongIsNamed) {
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_NE(rendezvous_from_environment().error().message.find("MASTER_ADDR"), std::string::npos);
  setenv("RANK", "2", 1);
  EXPECT_EQ(rendezvous_from_environment().error().message, "RANK=2: a whole number from 0 to 1 is expected");
  setenv("WORLD_SIZE", "many", 1);
  EXPECT_NE(rendezvous_from_environment().error().message.find("WORLD_SIZE=many"), std::string::npos);
  setenv("FATHOM_GROUP_TIMEOUT", "0", 1);
  EXPECT_FALSE(group_options_from_environment());
}

}  // namespace
}  // namespace fathom::comm
