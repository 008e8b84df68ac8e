#include "lab/target.h"

#include <gtest/gtest.h>

#include <map>

#include "lab/source_hash.h"

namespace fathom::lab {
namespace {

ExperimentInfo listed(std::string id, std::vector<std::string> variants,
                      std::vector<std::string> aliases = {}) {
  ExperimentInfo info;
  info.id      = std::move(id);
  info.aliases = std::move(aliases);
  for (std::string& variant : variants) {
    VariantInfo v;
    v.id = std::move(variant);
    info.variants.push_back(v);
  }
  return info;
}

const std::vector<ExperimentInfo> kExperiments = {
    listed("ch05/prefetch_reader", {"baseline", "double_buffered"}, {"ch5:optimized_storage_cpu"}),
    listed("ch07/gather_sorted", {"baseline", "sorted"}),
    listed("ch07/transpose_cpu", {"naive", "tiled", "tiled_1t"}),
    listed("ch09/matmul_cpu", {"naive", "tiled_1t", "tiled_all"}),
    listed("labs/hopper_matmul/gemm", {"baseline", "tma"}),
};
const std::vector<TargetLabel> kLabels = {
    {"ch10:cluster_multicast", "", "the clusters of ch10"},
    {"ch10:warp_roles", "", "the pipelines of ch10"},
    {"ch9:old_name", "ch09:matmul_cpu/tiled_1t", ""},
    {"tour", "ch07:gather_sorted ch09:matmul_cpu/naive", ""},
    {"act", "ch09:matmul_cpu ch10:warp_roles ch05:prefetch_reader ch07", ""},
    {"nested", "ch07:gather_sorted tour", ""},
};

// "ch07/transpose_cpu{tiled} ..." or the error.
std::string resolved(const std::vector<std::string>& names) {
  const auto targets = resolve_targets(names, kExperiments, kLabels);
  if (!targets) return targets.error().message;
  std::string text;
  for (const Selection& selection : targets->selections) {
    text += (text.empty() ? "" : " ") + selection.experiment;
    for (size_t v = 0; v < selection.variants.size(); ++v)
      text += (v == 0 ? "{" : ",") + selection.variants[v];
    if (!selection.variants.empty()) text += "}";
  }
  for (const Planned& planned : targets->planned)
    text += " (" + planned.label + ": " + planned.skip.reason + ")";
  return text;
}

TEST(Targets, NothingMeansEverything) {
  EXPECT_EQ(resolve_targets({}, kExperiments, kLabels)->selections.size(), kExperiments.size());
  EXPECT_TRUE(resolve_targets({}, {}, {})->selections.empty());
}

TEST(Targets, Grammar) {
  EXPECT_EQ(resolved({"ch07"}), "ch07/gather_sorted ch07/transpose_cpu");
  EXPECT_EQ(resolved({"ch7"}), "ch07/gather_sorted ch07/transpose_cpu");
  EXPECT_EQ(resolved({"ch07:transpose_cpu"}), "ch07/transpose_cpu");
  EXPECT_EQ(resolved({"ch07/transpose_cpu"}), "ch07/transpose_cpu");
  EXPECT_EQ(resolved({"ch7:transpose_cpu/tiled"}), "ch07/transpose_cpu{tiled}");
  EXPECT_EQ(resolved({"labs/hopper_matmul"}), "labs/hopper_matmul/gemm");
  EXPECT_EQ(resolved({"labs/hopper_matmul:gemm/tma"}), "labs/hopper_matmul/gemm{tma}");
  EXPECT_EQ(resolved({"labs"}), "labs/hopper_matmul/gemm");
}

TEST(Targets, GlobsStayWithinOnePartOfTheName) {
  EXPECT_EQ(resolved({"ch0*"}), "ch05/prefetch_reader ch07/gather_sorted ch07/transpose_cpu ch09/matmul_cpu");
  EXPECT_EQ(resolved({"ch0*:*_cpu"}), "ch07/transpose_cpu ch09/matmul_cpu");
  EXPECT_EQ(resolved({"ch0*:*_cpu/*_1t"}), "ch07/transpose_cpu{tiled_1t} ch09/matmul_cpu{tiled_1t}");
  EXPECT_EQ(resolved({"*/*/*/tma"}), "labs/hopper_matmul/gemm{tma}");
}

TEST(Targets, EachExperimentIsTakenOnce) {
  EXPECT_EQ(resolved({"ch07:transpose_cpu/tiled", "ch07:transpose_cpu/naive", "ch7:transpose_cpu/tiled"}),
            "ch07/transpose_cpu{tiled,naive}");
  EXPECT_EQ(resolved({"ch07:transpose_cpu/tiled", "ch07"}), "ch07/transpose_cpu ch07/gather_sorted");
  EXPECT_EQ(resolved({"ch07", "ch07:transpose_cpu/tiled"}), "ch07/gather_sorted ch07/transpose_cpu");
}

TEST(Targets, KeepTheOrderOfTheirNames) {
  EXPECT_EQ(resolved({"ch09", "ch05"}), "ch09/matmul_cpu ch05/prefetch_reader");
  EXPECT_EQ(resolved({"ch07", "ch05", "ch07:gather_sorted"}),
            "ch07/gather_sorted ch07/transpose_cpu ch05/prefetch_reader");
  EXPECT_EQ(resolved({"act"}),
            "ch09/matmul_cpu ch05/prefetch_reader ch07/gather_sorted ch07/transpose_cpu "
            "(ch10:warp_roles: not_built)");
  EXPECT_EQ(resolved({"ch05", "act"}),
            "ch05/prefetch_reader ch09/matmul_cpu ch07/gather_sorted ch07/transpose_cpu "
            "(ch10:warp_roles: not_built)");
  EXPECT_NE(resolved({"nested"}).find("leads to another label"), std::string::npos);
}

TEST(Targets, AliasesAndLabels) {
  EXPECT_EQ(resolved({"ch5:optimized_storage_cpu"}), "ch05/prefetch_reader");
  EXPECT_EQ(resolved({"ch05/optimized_storage_cpu/baseline"}), "ch05/prefetch_reader{baseline}");
  EXPECT_EQ(resolved({"ch9:old_name"}), "ch09/matmul_cpu{tiled_1t}");
  EXPECT_EQ(resolved({"tour"}), "ch07/gather_sorted ch09/matmul_cpu{naive}");  // a label of several targets
  EXPECT_EQ(resolved({"ch10:cluster_multicast"}), " (ch10:cluster_multicast: not_built)");
  EXPECT_EQ(resolved({"ch10"}), " (ch10:cluster_multicast: not_built) (ch10:warp_roles: not_built)");
}

TEST(Targets, TheIdOfAResultSetsItsAxes) {
  const auto targets = resolve_targets({"ch07/transpose_cpu/tiled?n=4096&dtype=f32"}, kExperiments, kLabels);
  ASSERT_TRUE(targets) << targets.error().message;
  ASSERT_EQ(targets->axes.size(), 2u);
  EXPECT_EQ(targets->axes[0].name, "n");
  EXPECT_EQ(targets->axes[0].values, std::vector<Value>{int64_t{4096}});
  EXPECT_EQ(result_id("ch07/transpose_cpu", "tiled", Point({{"n", int64_t{4096}}, {"dtype", "f32"}})),
            "ch07/transpose_cpu/tiled?n=4096&dtype=f32");
  EXPECT_EQ(result_id("ch07/x", "y", Point()), "ch07/x/y");

  EXPECT_TRUE(resolve_targets({"ch07?n=1", "ch09?n=1"}, kExperiments, kLabels));
  const auto two = resolve_targets({"ch07?n=1", "ch09?n=2"}, kExperiments, kLabels);
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message.find("another point"), std::string::npos);
  EXPECT_FALSE(resolve_targets({"ch07?n="}, kExperiments, kLabels));
  EXPECT_FALSE(resolve_targets({"ch07?"}, kExperiments, kLabels));
}

TEST(Targets, AMisspeltOneNamesTheNearest) {
  EXPECT_NE(resolved({"ch07:tranpose_cpu"}).find("did you mean 'ch07:transpose_cpu'"), std::string::npos);
  EXPECT_NE(resolved({"transpose_cpu"}).find("did you mean 'ch07:transpose_cpu'"), std::string::npos);
  EXPECT_NE(resolved({"ch10:cluster_mutlicast"}).find("'ch10:cluster_multicast'"), std::string::npos);
  EXPECT_NE(resolved({"labs/hoper_matmul"}).find("'labs/hopper_matmul'"), std::string::npos);
  const std::string variant = resolved({"ch07:transpose_cpu/tield"});
  EXPECT_NE(variant.find("did you mean 'tiled'"), std::string::npos) << variant;
  EXPECT_NE(variant.find("naive, tiled, tiled_1t"), std::string::npos) << variant;
  const std::string far = resolved({"quantum_annealing"});
  EXPECT_EQ(far.find("did you mean"), std::string::npos) << far;
  EXPECT_NE(far.find("fathom list"), std::string::npos) << far;
  for (const char* odd : {"", ":", "/", "ch07:transpose_cpu/tiled/more", "?n=1"})
    EXPECT_FALSE(resolve_targets({odd}, kExperiments, kLabels)) << odd;
}

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("tield", "tiled"), 1);  // a swap of neighbours is one slip
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
  EXPECT_EQ(edit_distance("flaw", "lawn"), edit_distance("lawn", "flaw"));
}

TEST(Labels, EveryOneIsATargetOrATypedPlan) {
  const auto labels = parse_labels(labels_toml());
  ASSERT_TRUE(labels) << labels.error().message;
  std::map<std::string, std::vector<std::string>> named;   // variants by experiment
  const auto is_sequence = [](const TargetLabel& label) {  // tests/registry_test.cpp resolves those
    return label.target.find(' ') != std::string::npos;
  };
  EXPECT_GE(std::count_if(labels->begin(), labels->end(), is_sequence), 5);  // the tour and the four acts
  for (const TargetLabel& label : *labels)
    if (!is_sequence(label) && !label.target.empty()) {
      const size_t variant = label.target.find('/', label.target.find(':'));
      std::string id       = label.target.substr(0, variant);
      std::replace(id.begin(), id.end(), ':', '/');
      named[id].push_back(variant == std::string::npos ? "baseline" : label.target.substr(variant + 1));
    }
  std::vector<ExperimentInfo> targets;  // stand-ins for what the table names
  for (const auto& [id, variants] : named) targets.push_back(listed(id, variants));
  for (const TargetLabel& label : *labels) {
    if (is_sequence(label)) continue;
    const auto found = resolve_targets({label.name}, targets, *labels);
    ASSERT_TRUE(found) << found.error().message;
    if (label.target.empty()) {
      ASSERT_EQ(found->planned.size(), 1u) << label.name;  // a label is nobody else's prefix
      EXPECT_EQ(found->planned[0].skip.reason, "not_built") << label.name;
    } else {
      EXPECT_EQ(found->selections.size(), 1u) << label.name;
    }
  }
}

TEST(Labels, BrokenTablesNameTheLine) {
  EXPECT_NE(parse_labels("[[label]\n").error().message.find("line 1"), std::string::npos);
  EXPECT_NE(parse_labels("").error().message.find("no [[label]]"), std::string::npos);
  EXPECT_NE(parse_labels("[[label]]\nname = \"a\"\n").error().message.find("either a target or a plan"),
            std::string::npos);
}

}  // namespace
}  // namespace fathom::lab
