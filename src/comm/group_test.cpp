// What holds for every backend, on ranks that are threads of this process.
#include "comm/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>

#include "comm/group_checks.h"
#include "comm/thread_group.h"
#include "core/expect.h"

namespace fathom::comm {
namespace {

using Cause = GroupError::Cause;

constexpr GroupOptions kPatient{.timeout = std::chrono::seconds(10)};

class ThreadGroups : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadGroups, testing::Values(1, 2, 3, 5));

TEST_P(ThreadGroups, CollectivesAreTheirDefinition) {
  expect_all_well(
      on_threads(GetParam(), kPatient, [](Group& group) { EXPECT_EQ(wrong_collectives(group), ""); }));
}

TEST_P(ThreadGroups, RandomProgramsGiveTheSumsOfPlainLoops) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    expect_all_well(on_threads(GetParam(), kPatient, [seed](Group& group) {
      EXPECT_EQ(wrong_random_program(group, seed, 15), "") << "seed " << seed;
    }));
}

TEST_P(ThreadGroups, ABarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  expect_all_well(on_threads(GetParam(), kPatient, [&](Group& group) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      group.barrier();
      EXPECT_GE(arrived.load(), round * group.size());
    }
  }));
}

TEST(ThreadGroup, NeighboursMaySendToEachOther) {
  expect_all_well(on_threads(3, kPatient, [](Group& group) {
    std::vector<int32_t> mine(100'000, group.rank()), theirs(mine.size());
    const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    group.send_receive<int32_t>(mine, next, theirs, before);
    EXPECT_EQ(theirs, std::vector<int32_t>(mine.size(), before));
  }));
}

TEST(ThreadGroup, AWrongSizeIsAMismatchOnAllRanks) {
  const auto errors = on_threads(3, kPatient, [](Group& group) {
    std::vector<float> data(group.rank() == 1 ? 12 : 16);
    group.all_reduce(std::span(data));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->cause(), Cause::mismatch);
    EXPECT_EQ(error->operation(), Operation::all_reduce);
    EXPECT_STREQ(error->what(), errors[0]->what());
  }
  const std::string text = errors[0]->what();
  for (const char* said : {"rank 1 called all_reduce", "48 bytes", "64 bytes", "sum of fp32"})
    EXPECT_NE(text.find(said), std::string::npos) << text;
}

TEST(ThreadGroup, AnotherOperationTypeOrRootIsAMismatch) {
  const auto mismatch = [](const std::function<void(Group&)>& rank_main) {
    for (const auto& error : on_threads(2, kPatient, rank_main)) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->cause(), Cause::mismatch) << error->what();
    }
  };
  std::vector<int32_t> numbers[2] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  mismatch([&](Group& group) {
    std::vector<int32_t> data(4);
    if (group.rank() == 0)
      group.barrier();
    else
      group.all_reduce(std::span(data));
  });
  mismatch([&](Group& group) {
    std::vector<float> floats(4);
    if (group.rank() == 0)
      group.all_reduce(std::span(numbers[0]));
    else
      group.all_reduce(std::span(floats));
  });
  mismatch([&](Group& group) {
    group.all_reduce(std::span(numbers[group.rank()]), group.rank() == 0 ? Reduction::sum : Reduction::max);
  });
}

TEST(ThreadGroup, TheRankThatDoesNotComeIsNamed) {
  std::atomic<int> given_up{0};
  const GroupOptions options{.timeout = std::chrono::milliseconds(200)};
  const auto errors = on_threads(3, options, [&](Group& group) {
    std::vector<float> data(8);
    group.all_reduce(std::span(data));
    if (group.rank() == 2)
      while (given_up < 2) std::this_thread::yield();
    try {
      group.all_reduce(std::span(data));
    } catch (const GroupError&) {
      ++given_up;
      throw;
    }
  });
  for (const auto& error : errors) {  // on the late rank too, when it comes
    ASSERT_TRUE(error);
    EXPECT_EQ(error->cause(), Cause::timed_out);
    EXPECT_EQ(error->rank(), 2);
    EXPECT_EQ(error->operation(), Operation::all_reduce);
  }
}

TEST(ThreadGroup, BlameFollowsWhoWaitsForWhom) {
  std::atomic<int> given_up{0};
  const GroupOptions options{.timeout = std::chrono::milliseconds(200)};
  const auto errors = on_threads(3, options, [&](Group& group) {
    std::vector<float> data(8);
    const auto wait_for = [&](int from) {
      try {
        group.receive(std::span(data), from);
      } catch (const GroupError&) {
        ++given_up;
        throw;
      }
    };
    if (group.rank() == 0) wait_for(1);
    if (group.rank() == 1) wait_for(2);
    while (given_up < 2) std::this_thread::yield();
  });
  ASSERT_TRUE(errors[0] && errors[1]);
  EXPECT_EQ(errors[0]->rank(), 2) << errors[0]->what();
  EXPECT_EQ(errors[1]->rank(), 2) << errors[1]->what();
}

TEST(ThreadGroup, RanksThatWaitForEachOtherAreTold) {
  const GroupOptions options{.timeout = std::chrono::milliseconds(100)};
  const auto errors = on_threads(2, options, [](Group& group) {
    std::vector<float> data(1);
    group.receive(std::span(data), 1 - group.rank());
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("wait for each other"), std::string::npos) << error->what();
  }
}

TEST(ThreadGroup, ARankThatLeavesIsNamedAndTheGroupStaysBroken) {
  const auto errors = on_threads(3, kPatient, [](Group& group) {
    if (group.rank() == 1) return;
    EXPECT_THROW(group.barrier(), GroupError);
    group.barrier();
  });
  EXPECT_FALSE(errors[1]);
  for (const size_t rank : {0, 2}) {
    ASSERT_TRUE(errors[rank]);
    EXPECT_EQ(errors[rank]->cause(), Cause::left);
    EXPECT_EQ(errors[rank]->rank(), 1);
  }
}

TEST(ThreadGroup, LeavingAfterTheLastOperationIsNoError) {
  for (int i = 0; i < 50; ++i)
    expect_all_well(on_threads(3, kPatient, [](Group& group) {
      std::vector<float> data(3, 1);
      group.broadcast(std::span(data), 0);
      group.all_reduce(std::span(data));
    }));
}

TEST(Group, ContractsAreChecked) {
  const auto group = std::move(make_thread_groups(1).front());
  std::vector<float> two(2), three(3);
  EXPECT_THROW(group->broadcast(std::span(two), 1), ContractError);
  EXPECT_THROW(group->all_gather<float>(two, three), ContractError);
  EXPECT_THROW(group->reduce_scatter<float>(two, three), ContractError);
  EXPECT_THROW(group->all_to_all<float>(two, three), ContractError);
  EXPECT_THROW(group->send<float>(two, 0), ContractError);
  std::vector<uint8_t> bytes(2);
  EXPECT_THROW(group->all_reduce(std::span(bytes)), ContractError);
  EXPECT_THROW(make_thread_groups(0), ContractError);
}

}  // namespace
}  // namespace fathom::comm
