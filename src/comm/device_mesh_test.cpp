#include "comm/device_mesh.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "comm/group_checks.h"
#include "comm/tcp_group.h"
#include "comm/thread_group.h"
#include "core/expect.h"

namespace fathom::comm {
namespace {

using Axes = std::vector<MeshAxis>;

// The text of the contract that f breaks.
std::string broken_contract(const std::function<void()>& f) {
  try {
    f();
  } catch (const ContractError& error) {
    return error.what();
  }
  return "no contract was broken";
}

TEST(ParseMesh, ReadsWhatToStringWrites) {
  EXPECT_EQ(parse_mesh("tp1").value(), (Axes{{"tp", 1}}));
  EXPECT_EQ(parse_mesh("pp2_dp16_tp4").value(), (Axes{{"pp", 2}, {"dp", 16}, {"tp", 4}}));
  EXPECT_EQ(to_string(parse_mesh("pp2_dp16_tp4").value()), "pp2_dp16_tp4");
}

TEST(ParseMesh, NamesThePartThatIsWrong) {
  for (const char* text :
       {"", "tp", "2", "tp0", "tp-1", "tp2_", "_tp2", "tp2__dp2", "tp2x", "TP2", "tp2_dp99999999999"})
    EXPECT_FALSE(parse_mesh(text)) << text;
  EXPECT_NE(parse_mesh("dp2_tpx_ep2").error().message.find("\"tpx\""), std::string::npos);
  EXPECT_NE(parse_mesh("dp2_dp2").error().message.find("dp twice"), std::string::npos);
}

TEST(DeviceMesh, TheLastAxisCountsFirst) {
  expect_all_well(on_threads(12, {}, [](Group& world) {
    DeviceMesh mesh(world, {{"pp", 2}, {"dp", 3}, {"tp", 2}});
    const int pp = mesh.coordinate("pp"), dp = mesh.coordinate("dp"), tp = mesh.coordinate("tp");
    EXPECT_EQ(world.rank(), (pp * 3 + dp) * 2 + tp);
    EXPECT_TRUE(pp < 2 && dp < 3 && tp < 2);
    EXPECT_EQ(mesh.size("dp"), 3);
    EXPECT_EQ(mesh.group({"dp"}).rank(), dp);
    EXPECT_EQ(mesh.group({"dp"}).ranks(), (std::vector<int>{pp * 6 + tp, pp * 6 + 2 + tp, pp * 6 + 4 + tp}));
  }));
}

// Each group sums over its axes alone: rank r gives 2^r, so that a sum says who is in it.
TEST(DeviceMesh, SubGroupsReduceIndependently) {
  expect_all_well(on_threads(8, {}, [](Group& world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"ep", 2}, {"tp", 2}});
    const int r    = world.rank();
    const auto sum = [&](std::initializer_list<std::string_view> axes) {
      std::vector<int32_t> one{1 << r};
      mesh.group(axes).all_reduce(std::span(one));
      return one[0];
    };
    EXPECT_EQ(sum({"tp"}), 1 << r | 1 << (r ^ 1));
    EXPECT_EQ(sum({"ep"}), 1 << r | 1 << (r ^ 2));
    EXPECT_EQ(sum({"dp"}), 1 << r | 1 << (r ^ 4));
    EXPECT_EQ(sum({"dp", "tp"}), 1 << r | 1 << (r ^ 1) | 1 << (r ^ 4) | 1 << (r ^ 5));
    EXPECT_EQ(sum({"dp", "ep", "tp"}), 255);
    EXPECT_EQ(sum({}), 1 << r);
  }));
}

// Half of the ranks sum a hundred times on their axis before the others, who are in no operation, begin.
TEST(DeviceMesh, AGroupWaitsForNoOther) {
  std::atomic<int> done{0};
  expect_all_well(on_threads(8, {}, [&](Group& world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 4}});
    if (mesh.coordinate("dp") == 1)
      while (done < 4) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) mesh.group({"tp"}).barrier();
    ++done;
  }));
}

TEST(DeviceMesh, SubGroupsHaveTheCollectivesOfGroups) {
  for (const Axes& axes :
       {Axes{{"dp", 2}, {"tp", 3}}, Axes{{"dp", 3}, {"tp", 2}}, Axes{{"dp", 1}, {"tp", 6}}})
    expect_all_well(on_threads(6, {}, [&](Group& world) {
      DeviceMesh mesh(world, axes);
      for (const char* axis : {"dp", "tp"}) {
        EXPECT_EQ(wrong_collectives(mesh.group({axis})), "") << to_string(axes) << " " << axis;
        EXPECT_EQ(wrong_random_program(mesh.group({axis}), 7, 15), "") << to_string(axes) << " " << axis;
      }
      EXPECT_EQ(wrong_collectives(world), "");
    }));
}

TEST(DeviceMesh, WorksOverTcp) {
  const int port = free_tcp_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([=] {
      const auto world = join_tcp_group({.port = port, .rank = rank, .size = 4});
      DeviceMesh mesh(*world, {{"dp", 2}, {"tp", 2}});
      EXPECT_EQ(wrong_collectives(mesh.group({"tp"})), "");
      EXPECT_EQ(wrong_collectives(mesh.group({"dp"})), "");
      world->barrier();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceMesh, AnAxisOfSizeOneSendsNothing) {
  expect_all_well(on_threads(4, {}, [](Group& world) {
    DeviceMesh mesh(world, {{"dp", 4}, {"tp", 1}, {"ep", 1}});
    std::vector<float> numbers(1000, 1);
    for (const char* axis : {"tp", "ep"}) {
      EXPECT_EQ(wrong_collectives(mesh.group({axis})), "");
      mesh.group({axis}).all_reduce(std::span(numbers));
      EXPECT_EQ(mesh.group({axis}).sent_bytes(), 0);
    }
    EXPECT_EQ(numbers, std::vector<float>(1000, 1));
    EXPECT_EQ(mesh.sent_bytes(), 0);
  }));
}

// Small sums go to each other rank whole, a large one as two halves of (n - 1) / n of it.
TEST(DeviceMesh, CountsWhatItSent) {
  expect_all_well(on_threads(8, {}, [](Group& world) {
    DeviceMesh mesh(world, {{"dp", 4}, {"tp", 2}});
    std::vector<float> small(10), large(64 << 10);
    mesh.group({"dp"}).all_reduce(std::span(small));
    EXPECT_EQ(mesh.group({"dp"}).sent_bytes(), 3 * 40);
    mesh.group({"dp"}).all_reduce(std::span(large));
    EXPECT_EQ(mesh.group({"dp"}).sent_bytes(), 3 * 40 + 2 * 3 * (256 << 10) / 4);
    EXPECT_EQ(mesh.group({"tp"}).sent_bytes(), 0);
  }));
}

TEST(DeviceMesh, AMismatchNamesRanksOfTheWholeGroup) {
  const auto errors = on_threads(8, {}, [](Group& world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 4}});
    if (mesh.coordinate("dp") == 0) return;
    std::vector<float> numbers(world.rank() == 6 ? 3 : 4);
    mesh.group({"tp"}).all_reduce(std::span(numbers));
  });
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_FALSE(errors[rank]);
  for (size_t rank = 4; rank < 8; ++rank) {
    ASSERT_TRUE(errors[rank]);
    EXPECT_EQ(errors[rank]->cause(), GroupError::Cause::mismatch);
    EXPECT_NE(std::string(errors[rank]->what()).find("rank 6 called all_reduce"), std::string::npos)
        << errors[rank]->what();
  }
}

TEST(DeviceMesh, ErrorsNameTheMesh) {
  const auto world = std::move(make_thread_groups(8).front());
  const auto says  = [&](const Axes& axes, const std::string& text) {
    const std::string what = broken_contract([&] { DeviceMesh(*world, axes); });
    EXPECT_NE(what.find(text), std::string::npos) << what;
  };
  says({{"dp", 2}, {"tp", 3}}, "dp2_tp3 has 6 ranks, its group 8");
  says({{"dp", 4}, {"tp", 3}}, "dp4_tp3 has more ranks than its group, 8");
  says({{"dp", 1 << 30}, {"tp", 1 << 30}, {"ep", 1 << 30}}, "more ranks than its group");
  says({}, "has 1 ranks, its group 8");
  says({{"dp", 0}, {"tp", 8}}, "axis dp of a mesh has size 0");
  says({{"dp", 2}, {"dp", 4}}, "dp2_dp4 has dp twice");

  DeviceMesh mesh(*world, {{"dp", 4}, {"tp", 2}});
  const std::string what = broken_contract([&] { mesh.group({"pp"}); });
  EXPECT_NE(what.find("the mesh dp4_tp2 has no axis pp"), std::string::npos) << what;
  EXPECT_EQ(&mesh.group({"tp"}), &mesh.group({"tp"}));
  EXPECT_EQ(&mesh.group({"dp", "tp"}), &mesh.group({"tp", "dp"}));
}

TEST(SubGroup, ContractsAreChecked) {
  const auto world = std::move(make_thread_groups(4).front());
  for (const std::vector<int>& ranks : {std::vector<int>{}, {1, 2}, {0, 4}, {-1, 0}, {0, 2, 2}})
    EXPECT_THROW(SubGroup(*world, ranks), ContractError);
  SubGroup reversed(*world, {3, 0});
  EXPECT_EQ(reversed.rank(), 1);
}

}  // namespace
}  // namespace fathom::comm
