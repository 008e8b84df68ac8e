#include "model/harmony_tools.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace fathom::model {
namespace {

// tools/harmony_goldens.py generates the goldens with the openai-harmony package.
TEST(HarmonyTools, AgreesWithOpenaiHarmony) {
  std::ifstream file(FATHOM_SOURCE_TREE "/tests/goldens/harmony_tools.json");
  const auto goldens = nlohmann::ordered_json::parse(file);
  ASSERT_GE(goldens["cases"].size(), 100u);
  for (const auto& golden : goldens["cases"]) {
    std::vector<NamedSchema> functions;
    for (const auto& function : golden["functions"])
      functions.push_back({.name        = function["name"],
                           .description = function["description"],
                           .schema = function.contains("parameters") ? function["parameters"].dump() : ""});
    EXPECT_EQ(harmony_developer_text(golden["instructions"].get<std::string>(), functions, nullptr),
              golden["text"].get<std::string>())
        << golden["name"] << " of openai-harmony " << goldens["openai-harmony"];
  }
}

TEST(HarmonyTools, EmptyArgumentsGiveNoText) { EXPECT_EQ(harmony_developer_text("", {}, nullptr), ""); }

// openai-harmony leaves this section to its caller; the format is that of its guide.
TEST(HarmonyTools, ResponseFormatComesLast) {
  const NamedSchema list{.name = "list", .description = "Things\nto buy", .schema = R"({"type":"array"})"};
  EXPECT_EQ(harmony_developer_text("Be brief.", {}, &list),
            "# Instructions\n\nBe brief.\n\n# Response Formats\n\n## list\n\n// Things\n// to buy\n"
            R"({"type":"array"})");
  const std::vector<NamedSchema> functions{{.name = "f"}};
  EXPECT_EQ(
      harmony_developer_text("", functions, &list),
      "# Tools\n\n## functions\n\nnamespace functions {\n\ntype f = () => any;\n\n} // namespace functions"
      "\n\n# Response Formats\n\n## list\n\n// Things\n// to buy\n"
      R"({"type":"array"})");
}

}  // namespace
}  // namespace fathom::model
