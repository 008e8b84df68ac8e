#include "lab/target.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>

namespace fathom::lab {
namespace {

std::vector<std::string> split_target(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// "ch7:x" and "ch07/x" are the same: two digits, slashes.
std::string canonical(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), ':', '/');
  if (text.size() >= 3 && text.starts_with("ch") && std::isdigit(static_cast<unsigned char>(text[2])) &&
      (text.size() == 3 || text[3] == '/'))
    text.insert(2, "0");
  while (text.ends_with('/')) text.pop_back();
  return text;
}

// As a person writes it: "ch07:transpose_cpu".
std::string spoken(const std::string& id) {
  const size_t slash = id.rfind('/');
  return slash == std::string::npos ? id : id.substr(0, slash) + ":" + id.substr(slash + 1);
}

// Whether every pattern fits its part: "ch0*" begins "ch07/transpose_cpu".
bool begins(const std::vector<std::string>& patterns, const std::vector<std::string>& parts) {
  if (patterns.size() > parts.size()) return false;
  return std::equal(
      patterns.begin(), patterns.end(), parts.begin(),
      [](const auto& pattern, const auto& part) { return fnmatch(pattern.c_str(), part.c_str(), 0) == 0; });
}

struct Match {
  const ExperimentInfo* experiment;
  std::vector<std::string> variants;  // empty: all
};

class Resolver {
 public:
  Resolver(const std::vector<ExperimentInfo>& experiments, const std::vector<TargetLabel>& labels)
      : experiments_(experiments), labels_(labels) {}

  std::optional<Error> add(const std::string& name, Targets& targets, int depth = 0) {
    const std::string wanted = canonical(name);
    if (wanted.empty()) return Error{"a target is empty; `fathom list` shows what there is"};

    std::vector<Match> matches;
    std::optional<Error> no_variant;
    for (const ExperimentInfo& experiment : experiments_)
      match(experiment, experiment.id, wanted, matches, no_variant);
    if (matches.empty())
      for (const ExperimentInfo& experiment : experiments_)
        for (const std::string& alias : experiment.aliases)
          match(experiment, canonical(alias), wanted, matches, no_variant);
    for (Match& match : matches) take(std::move(match), targets);
    if (!matches.empty()) return std::nullopt;
    if (no_variant) return no_variant;

    bool known = false;
    for (const TargetLabel& label : labels_) {
      if (!begins(split_target(wanted, '/'), split_target(canonical(label.name), '/'))) continue;
      known = true;
      if (label.target.empty())
        targets.planned.push_back(
            {label.name, Skip{"not_built", ""}, "not built yet; it will come with " + label.planned});
      else if (depth > 0)  // one that is planned may stand in a list, for what the list will have
        return Error{
            fmt::format("labels.toml: '{}' leads to another label; name the experiment", label.name)};
      else
        for (const std::string& target : split_target(label.target, ' '))
          if (auto error = add(target, targets, depth + 1)) return error;
    }
    if (known) return std::nullopt;
    return Error{unknown(name)};
  }

 private:
  // `id` is the experiment's own or another name of it.
  static void match(const ExperimentInfo& experiment, const std::string& id, const std::string& wanted,
                    std::vector<Match>& matches, std::optional<Error>& no_variant) {
    auto patterns    = split_target(wanted, '/');
    const auto parts = split_target(id, '/');
    Match found{&experiment, {}};
    std::string variant_pattern;
    if (patterns.size() == parts.size() + 1) {
      variant_pattern = patterns.back();
      patterns.pop_back();
    }
    if (!begins(patterns, parts)) return;
    if (!variant_pattern.empty()) {
      std::vector<std::string> ids;
      for (const VariantInfo& variant : experiment.variants) {
        ids.push_back(variant.id);
        if (begins({variant_pattern}, {variant.id})) found.variants.push_back(variant.id);
      }
      if (found.variants.empty()) {
        const std::string near = nearest(variant_pattern, ids);
        no_variant =
            Error{fmt::format("{} has no variant '{}'; {}it has {}", spoken(experiment.id), variant_pattern,
                              near.empty() ? "" : "did you mean '" + near + "'? ", fmt::join(ids, ", "))};
        return;
      }
    }
    matches.push_back(std::move(found));
  }

  static void take(Match match, Targets& targets) {
    auto& selections = targets.selections;
    const auto place = std::find_if(selections.begin(), selections.end(), [&](const Selection& selection) {
      return selection.experiment == match.experiment->id;
    });
    if (place == selections.end()) {
      selections.push_back({match.experiment->id, std::move(match.variants)});
    } else if (place->variants.empty() || match.variants.empty()) {
      place->variants.clear();  // all of them, whatever else was named
    } else {
      for (std::string& variant : match.variants)
        if (std::find(place->variants.begin(), place->variants.end(), variant) == place->variants.end())
          place->variants.push_back(std::move(variant));
    }
  }

  std::string unknown(const std::string& name) const {
    std::vector<std::string> names;
    std::map<std::string, std::string> full;  // of names without their chapter
    for (const ExperimentInfo& experiment : experiments_) {
      names.push_back(spoken(experiment.id));
      names.push_back(experiment.id.substr(0, experiment.id.rfind('/')));
      const std::string bare = experiment.id.substr(experiment.id.rfind('/') + 1);
      full.emplace(bare, spoken(experiment.id));
      names.push_back(bare);
      names.insert(names.end(), experiment.aliases.begin(), experiment.aliases.end());
    }
    for (const TargetLabel& label : labels_) names.push_back(label.name);
    std::string near = nearest(name, names);
    if (const auto bare = full.find(near); bare != full.end()) near = bare->second;
    if (near.empty()) return fmt::format("there is no target '{}'; `fathom list` shows what there is", name);
    return fmt::format("there is no target '{}'; did you mean '{}'? `fathom list` shows all", name, near);
  }

  const std::vector<ExperimentInfo>& experiments_;
  const std::vector<TargetLabel>& labels_;
};

}  // namespace

Result<std::vector<TargetLabel>> parse_labels(std::string_view text) {
  std::vector<TargetLabel> labels;
  try {
    const toml::table file   = toml::parse(text, std::string_view("labels.toml"));
    const toml::array* lines = file["label"].as_array();
    if (!lines) return Error{"labels.toml has no [[label]]"};
    for (const toml::node& line : *lines) {
      const toml::table* entry = line.as_table();
      const auto field         = [&](const char* name) {
        return entry ? (*entry)[name].value_or(std::string()) : std::string();
      };
      TargetLabel label{.name = field("name"), .target = field("target"), .planned = field("planned")};
      if (label.name.empty()) return Error{"labels.toml: a [[label]] has no name"};
      if (label.target.empty() == label.planned.empty())
        return Error{fmt::format("labels.toml: '{}' needs either a target or a plan", label.name)};
      labels.push_back(std::move(label));
    }
  } catch (const toml::parse_error& error) {
    return Error{
        fmt::format("labels.toml, line {}: {}", error.source().begin.line, std::string(error.description()))};
  }
  return labels;
}

Result<Targets> resolve_targets(const std::vector<std::string>& names,
                                const std::vector<ExperimentInfo>& experiments,
                                const std::vector<TargetLabel>& labels) {
  Targets targets;
  if (names.empty()) {
    for (const ExperimentInfo& experiment : experiments) targets.selections.push_back({experiment.id, {}});
    return targets;
  }
  Resolver resolver(experiments, labels);
  for (const std::string& name : names) {
    const size_t question = name.find('?');
    if (auto error = resolver.add(name.substr(0, question), targets)) return *error;
    if (question == std::string::npos) continue;
    std::vector<Axis> axes;
    for (const std::string& parameter : split_target(std::string_view(name).substr(question + 1), '&')) {
      auto axis = parse_axis(parameter);
      if (!axis) return Error{fmt::format("target '{}': {}", name, axis.error().message)};
      axes.push_back(std::move(*axis));
    }
    const auto same = [](const Axis& a, const Axis& b) { return a.name == b.name && a.values == b.values; };
    if (!targets.axes.empty() &&
        !std::equal(axes.begin(), axes.end(), targets.axes.begin(), targets.axes.end(), same))
      return Error{fmt::format(
          "target '{}' names another point than the one before; run them one after the other", name)};
    targets.axes = std::move(axes);
  }
  return targets;
}

std::string result_id(std::string_view experiment, std::string_view variant, const Point& at) {
  const std::string point = at.to_string();
  return fmt::format("{}/{}{}{}", experiment, variant, point.empty() ? "" : "?", point);
}

int edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment: three rows of the usual table, the third for swaps of neighbours.
  std::vector<int> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of the letters wrong is a typing mistake; more is another word.
  int least = static_cast<int>(std::max<size_t>(2, word.size() / 3)) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best  = candidate;
    }
  }
  return best;
}

}  // namespace fathom::lab
